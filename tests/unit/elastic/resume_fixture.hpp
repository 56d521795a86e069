#pragma once

// Members that have outlived a coordinator, and the coordinators to which they return.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/unit/elastic/coordinator_harness.hpp"

namespace mayfly::elastic {

inline constexpr std::uint64_t kJob = 501;
inline constexpr MemberId k5{5};

/// A view of the members 1 to `count`; a coordinator of incarnation 1 published it.
inline View old_view(std::uint64_t id, std::uint32_t count, std::uint64_t committed = 10) {
  View view;
  view.id = ViewId{id};
  view.key = 77;
  view.committed = Step{committed};
  for (std::uint32_t i = 1; i <= count; ++i) {
    const std::uint32_t first = 8 * (i - 1) / count;
    const std::uint32_t share = 8 * i / count - first;
    view.members.push_back({MemberId{i}, "", MicrobatchSet::range(first, share), first, share});
  }
  return view;
}

inline LogContents log_with(const View& view) {
  LogContents contents;
  contents.job = kJob;
  contents.microbatches = 8;
  contents.incarnation = Incarnation{1};
  contents.view = view;
  return contents;
}

/// Makes a member return to `job`; false if it was refused.
inline bool come_back(CoordinatorHarness& job, MemberId member, std::uint64_t view,
                      std::uint64_t accepted = 1) {
  Hello hello;
  hello.member = member;
  hello.job = kJob;
  hello.incarnation = Incarnation{accepted};
  hello.author = kJob;
  hello.view = ViewId{view};
  const std::size_t before = job.all<coordinator_effect::Accept>().size();
  job.give(coordinator_event::WorkerConnected{++job.connections, hello});
  return job.all<coordinator_effect::Accept>().size() > before;
}

inline Resume running_in(const CoordinatorHarness& job, const View& view, std::uint64_t committed) {
  Resume resume;
  resume.incarnation = job.coordinator.incarnation();
  resume.phase = ResumePhase::kRunning;
  resume.view = view;
  resume.committed = Step{committed};
  resume.is_active = resume.committed > view.committed;
  return resume;
}

inline Resume stopped_in(const CoordinatorHarness& job, const View& view, std::uint64_t committed,
                         MicrobatchSet held = {}) {
  Resume resume = running_in(job, view, committed);
  resume.phase = ResumePhase::kStopped;
  resume.last = Stopped{};
  resume.last->view = view.id;
  resume.last->committed = Step{committed};
  resume.last->held = std::move(held);
  return resume;
}

/// Makes a member return that still runs `view`.
inline void return_running(CoordinatorHarness& job, MemberId member, const View& view,
                           std::uint64_t committed = 12) {
  ASSERT_TRUE(come_back(job, member, value(view.id)));
  job.say(member, running_in(job, view, committed));
}

inline void return_stopped(CoordinatorHarness& job, MemberId member, const View& view,
                           std::uint64_t committed = 12, MicrobatchSet held = {}) {
  ASSERT_TRUE(come_back(job, member, value(view.id)));
  job.say(member, stopped_in(job, view, committed, std::move(held)));
}

template <typename Record>
std::vector<Record> appended(const CoordinatorHarness& job) {
  std::vector<Record> found;
  for (const auto& append : job.all<coordinator_effect::Append>()) {
    if (const auto* record = std::get_if<Record>(&append.record)) {
      found.push_back(*record);
    }
  }
  return found;
}

inline CoordinatorOptions quorum_options(bool standby = false) {
  CoordinatorOptions options;
  options.identity = kJob;
  options.quorum = true;
  options.standby = standby;
  return options;
}

/// A running job with standbys, of `count` members whose view has committed a step.
inline CoordinatorHarness primary(std::uint32_t count, std::uint32_t min_workers = 1) {
  CoordinatorOptions options = quorum_options();
  options.initial_workers = count;
  options.min_workers = min_workers;
  CoordinatorHarness job(options);
  for (std::uint32_t i = 0; i < count; ++i) {
    (void)job.join();
  }
  for (const MemberId member : job.view_members()) {
    job.start(member, 1);
  }
  job.clear();
  return job;
}

inline void lose(CoordinatorHarness& job, std::initializer_list<MemberId> members) {
  for (const MemberId member : members) {
    job.give(coordinator_event::ConnectionLost{member, "reset"});
  }
}

/// Makes a member that was evicted in `view` or before join again under its id.
inline bool join_again(CoordinatorHarness& job, MemberId member, const View& view,
                       bool contributed = true) {
  Hello hello;
  hello.member = member;
  hello.job = kJob;
  hello.incarnation = Incarnation{1};
  hello.author = kJob;
  hello.view = view.id;
  hello.joins_again = true;
  const std::size_t before = job.all<coordinator_effect::Accept>().size();
  job.give(coordinator_event::WorkerConnected{++job.connections, hello});
  Resume resume;
  resume.incarnation = job.coordinator.incarnation();
  resume.phase = ResumePhase::kReady;
  resume.view = view;
  if (!contributed) {
    resume.last = Stopped{};
    resume.last->view = view.id;
    resume.last->contributed = false;
  }
  job.say(member, resume);
  return job.all<coordinator_effect::Accept>().size() > before;
}

}  // namespace mayfly::elastic
