#pragma once

// Drives one Coordinator by hand: short names for events, and all effects so far in lists by kind.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/core/coordinator.hpp"
#include "tests/unit/elastic/members.hpp"

namespace mayfly::elastic {

class CoordinatorHarness {
 public:
  explicit CoordinatorHarness(CoordinatorOptions options) : coordinator(std::move(options)) {
    give(coordinator_event::Tick{});
    clear();  // removes the effects of the coordinator's start
  }

  /// A coordinator that continues the job of a log.
  CoordinatorHarness(CoordinatorOptions options, const LogContents& contents)
      : coordinator(std::move(options), contents) {
    give(coordinator_event::Tick{});
  }

  void give(const CoordinatorEvent& event) {
    for (CoordinatorEffect& effect : coordinator.handle(now, event)) {
      effects.push_back(std::move(effect));
    }
  }
  void say(MemberId member, Message message) {
    give(coordinator_event::Received{member, std::move(message)});
  }
  /// Lets time pass in small ticks; at each tick every listed member sends a heartbeat.
  void pass(Duration time, const std::vector<MemberId>& alive) {
    for (const Instant end = now + time; now < end;) {
      now = now + milliseconds(10);
      for (const MemberId member : alive) {
        give(coordinator_event::SentinelBeat{member});
      }
      give(coordinator_event::Tick{});
    }
  }
  MemberId connect(const std::string& address = "") {
    Hello hello;
    hello.address = address;
    give(coordinator_event::WorkerConnected{++connections, hello});
    return all<coordinator_effect::Accept>().back().member;
  }
  MemberId join(std::uint64_t committed = 0) {
    const MemberId member = connect();
    say(member, Ready{Step{committed}});
    return member;
  }
  void stopped(MemberId member, std::uint64_t committed, MicrobatchSet held = {}) {
    say(member, Stopped{view().id, Step{committed}, std::move(held), false, false, {}, ""});
  }
  void finished(MemberId member, std::uint64_t committed) {
    say(member, Stopped{view().id, Step{committed}, {}, true, false, {}, ""});
  }
  void failed(MemberId member, std::uint64_t committed, std::optional<MemberId> culprit = {}) {
    say(member, Stopped{view().id, Step{committed}, {}, false, true, culprit, "broken"});
  }
  void start(MemberId member, std::uint64_t committed) {
    say(member, Formed{view().id});
    say(member, Synced{view().id});
    say(member, Progress{view().id, Step{committed}, 0});
  }

  [[nodiscard]] const View& view() const { return *coordinator.view(); }
  [[nodiscard]] std::vector<MemberId> view_members() const {
    std::vector<MemberId> ids;
    for (const ViewMember& member : view().members) {
      ids.push_back(member.id);
    }
    return ids;
  }
  template <typename Effect>
  [[nodiscard]] std::vector<Effect> all() const {
    std::vector<Effect> found;
    for (const CoordinatorEffect& effect : effects) {
      if (const auto* wanted = std::get_if<Effect>(&effect)) {
        found.push_back(*wanted);
      }
    }
    return found;
  }
  /// The messages of one kind that were sent to `member` since clear().
  template <typename Sent>
  [[nodiscard]] std::vector<Sent> sent(MemberId member) const {
    std::vector<Sent> found;
    for (const CoordinatorEffect& effect : effects) {
      const Message* message = nullptr;
      if (const auto* send = std::get_if<coordinator_effect::Send>(&effect)) {
        message = send->member == member ? &send->message : nullptr;
      } else if (const auto* to_all = std::get_if<coordinator_effect::SendToAll>(&effect)) {
        const auto& whom = to_all->members;
        const bool is_meant = std::find(whom.begin(), whom.end(), member) != whom.end();
        message = is_meant ? &to_all->message : nullptr;
      }
      if (message != nullptr && std::holds_alternative<Sent>(*message)) {
        found.push_back(std::get<Sent>(*message));
      }
    }
    return found;
  }
  [[nodiscard]] bool noted(const std::string& kind) const {
    const auto notes = all<coordinator_effect::Note>();
    return std::any_of(notes.begin(), notes.end(),
                       [&](const coordinator_effect::Note& note) { return note.kind == kind; });
  }
  [[nodiscard]] std::optional<Outcome> outcome() const {
    const auto ends = all<coordinator_effect::JobEnded>();
    return ends.empty() ? std::nullopt : std::optional(ends.back().outcome);
  }
  void clear() { effects.clear(); }

  Coordinator coordinator;
  Instant now = Instant{} + seconds(1);
  std::vector<CoordinatorEffect> effects;
  std::uint64_t connections = 0;
};

/// A job whose first view has `count` members, all at step `committed`. Earlier effects are
/// cleared.
inline CoordinatorHarness running_job(std::uint32_t count, std::uint64_t committed = 10,
                                      CoordinatorOptions options = {}) {
  options.initial_workers = count;
  CoordinatorHarness job(std::move(options));
  for (std::uint32_t i = 0; i < count; ++i) {
    (void)job.join();
  }
  for (const MemberId member : job.view_members()) {
    job.start(member, committed);
  }
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  job.clear();
  return job;
}

}  // namespace mayfly::elastic
