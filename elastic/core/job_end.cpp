#include "elastic/core/job_end.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {

namespace {

std::size_t ready_workers(const Membership& membership) {
  const Peers& peers = membership.peers();
  return static_cast<std::size_t>(std::ranges::count_if(peers, [](const Peers::value_type& entry) {
    return entry.second.is_candidate() && entry.second.is_worker;
  }));
}

std::size_t finished_members(const Membership& membership) {
  if (membership.count(Peer::Phase::kStopped) == 0) {
    return 0;
  }
  const Peers& peers = membership.peers();
  return static_cast<std::size_t>(std::ranges::count_if(peers, [](const Peers::value_type& entry) {
    return entry.second.phase() == Peer::Phase::kStopped && entry.second.stopped.finished;
  }));
}

/// The worker that writes the last checkpoint in a job with parameter servers: the first one of the
/// last view, whichever step it has reported, because it gets the state from the servers. A worker
/// that was in no view does not know the servers.
std::optional<MemberId> worker_beside_servers(const Membership& membership) {
  const Candidates all = membership.candidates();
  const auto first = std::ranges::find_if(all, [](const auto& candidate) {
    return candidate.second->is_worker && candidate.second->phase() == Peer::Phase::kStopped;
  });
  return first == all.end() ? std::nullopt : std::optional(first->first);
}

}  // namespace

WorkerQuota::WorkerQuota(const CoordinatorOptions& options)
    : least_(options.min_workers),
      initial_(options.initial_workers),
      initial_servers_(options.counts_as_server ? options.initial_servers : 0),
      counts_as_server_(options.counts_as_server),
      timeout_(options.min_workers_timeout),
      counts_some_only_(static_cast<bool>(options.counts_as_worker)) {}

std::size_t WorkerQuota::ready_servers(const Membership& membership) const {
  const auto is_ready = [this](const Peers::value_type& entry) {
    return entry.second.is_candidate() && counts_as_server_(entry.second.address);
  };
  return static_cast<std::size_t>(std::ranges::count_if(membership.peers(), is_ready));
}

std::optional<std::string> WorkerQuota::lack(const Membership& membership, Instant now) const {
  const std::size_t least = std::max<std::size_t>(least_, 1);
  const std::size_t initial = std::max<std::size_t>(initial_, least);
  const std::size_t members =
      membership.count(Peer::Phase::kReady) + membership.count(Peer::Phase::kStopped);
  const bool waits_for_all = !membership.view() && !is_hopeless(now);
  if (waits_for_all && members < initial) {
    return std::to_string(members) + " of " + std::to_string(initial) +
           (counts_some_only_ ? " members are ready" : " workers are ready");
  }
  // Whatever the number of workers: a job that has begun without a server does not get one later.
  if (waits_for_all && initial_servers_ > 0) {
    if (const std::size_t servers = ready_servers(membership); servers < initial_servers_) {
      return std::to_string(servers) + " of " + std::to_string(initial_servers_) +
             " parameter servers are ready";
    }
  }
  const std::size_t workers = ready_workers(membership);
  if (workers < least) {
    return std::to_string(workers) + " of " + std::to_string(least) + " workers are ready";
  }
  return std::nullopt;
}

void WorkerQuota::wait(const Membership& membership, Instant now) {
  const bool has_candidates =
      membership.count(Peer::Phase::kReady) + membership.count(Peer::Phase::kStopped) > 0;
  if (!since_ && (membership.view() || has_candidates)) {
    since_ = now;
  }
}

std::string WorkerQuota::reason_to_end(const Membership& membership) const {
  return std::to_string(ready_workers(membership)) + " workers are ready, " +
         std::to_string(least_) + " are needed";
}

void WorkerQuota::extend_deadlines(Duration pause, Instant now) {
  if (since_) {
    since_ = std::min(*since_ + pause, now);
  }
}

void JobEnd::restore(const LogContents& contents) {
  pause_requested_ = contents.is_paused;
  before_ = contents.ended;
}

bool JobEnd::request_pause(bool pause) {
  return std::exchange(pause_requested_, pause) != pause;
}

void JobEnd::request_stop(const std::string& reason) {
  stop_requested_ = stop_requested_.value_or(reason);
}

std::optional<JobEnd::Ending> JobEnd::decide(const Membership& membership, bool can_go_on) {
  const std::size_t finished = finished_members(membership);
  if (finished > 0 && finished == membership.count(Peer::Phase::kStopped)) {
    return Ending{Outcome::kDone, "", true};
  }
  const bool may_finish = finished > 0 && can_go_on;
  if (stop_requested_ && (!may_finish || std::exchange(is_finishing_, true))) {
    return Ending{Outcome::kStopped, *stop_requested_, membership.view().has_value()};
  }
  return std::nullopt;
}

JobEnd::Ending JobEnd::once_more(const Membership& membership) const {
  ENSURE(before_, "only an ended job ends once more");
  const bool has_state = membership.view().has_value() && before_->outcome != Outcome::kFailed;
  return {before_->outcome, before_->detail, has_state};
}

std::optional<MemberId> holder_of_newest_state(const Membership& membership) {
  if (!membership.steps_need_all_members()) {
    return worker_beside_servers(membership);
  }
  std::optional<MemberId> holder;
  Step newest{};
  const Step first = membership.first_step();
  const bool has_trained = membership.committed() > first || membership.is_progress_unknown();
  for (const auto& [id, peer] : membership.candidates()) {
    const bool has_nothing = has_trained && peer->committed <= first;
    if (peer->is_worker && !has_nothing && (!holder || peer->committed > newest)) {
      holder = id;
      newest = peer->committed;
    }
  }
  return holder;
}

DismissReason reason_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone: return DismissReason::kJobDone;
    case Outcome::kStopped: return DismissReason::kJobStopped;
    case Outcome::kFailed:
    case Outcome::kTooFewWorkers: return DismissReason::kJobFailed;
  }
  UNREACHABLE("every outcome has a reason");
}

}  // namespace mayfly::elastic
