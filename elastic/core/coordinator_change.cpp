#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"

// How a view ends and what follows: every event sets facts, then advance() decides once.

namespace mayfly::elastic {
namespace {

bool is_unplanned(const Recovery& change) {
  return change.cause == "lost" || change.cause == "group_failed" || change.cause == "corrupted";
}

}  // namespace

void Coordinator::advance() {
  if (phase_ == Phase::kResuming && ended_before_) {
    end_again_if_due();
  } else if (phase_ == Phase::kResuming) {
    take_charge_if_due();
  }
  if (phase_ == Phase::kEnded || phase_ == Phase::kResuming) {
    return;
  }
  const bool may_end = stop_asked_ && !membership_.is_anyone_active();
  if (!may_end) {  // else whoever leaves may have to write the last checkpoint: go_on() decides
    dismiss_leavers();
  }
  if (phase_ == Phase::kRunning) {
    start_planned_change();
  } else if (!membership_.is_anyone_active()) {
    go_on();
    if (phase_ == Phase::kRunning) {
      start_planned_change();  // what was asked for meanwhile and could not be granted yet
    }
  }
}

void Coordinator::start_planned_change() {
  ENSURE(phase_ == Phase::kRunning, "a planned change starts from a running view");
  if (stop_asked_ && is_finishing_) {
    return;  // the members find by themselves that the job is over
  }
  if (stop_asked_) {
    begin_change(false, "stop", {});
    return;
  }
  if (pause_asked_) {
    begin_change(false, "pause", {});
    return;
  }
  std::vector<MemberId> leavers;
  std::vector<MemberId> joiners;
  const std::size_t room = membership_.free_places(Peer::Phase::kActive);
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kActive && peer.leaving && membership_.leaves_somebody(id)) {
      leavers.push_back(id);
    } else if (peer.phase == Peer::Phase::kReady && joiners.size() < room) {
      joiners.push_back(id);
    }
  }
  if (!leavers.empty()) {
    begin_change(false, "leave", std::move(leavers));
  } else if (!joiners.empty()) {
    begin_change(false, "join", std::move(joiners));
  } else if (std::vector<MemberId> observers = observers_to_start(); !observers.empty()) {
    begin_change(false, "promote", std::move(observers));
  }
}

void Coordinator::begin_change(bool immediate, const std::string& cause,
                               std::vector<MemberId> members) {
  ENSURE(membership_.view() && (phase_ == Phase::kRunning || phase_ == Phase::kStopping),
         "only a published view can end");
  if (phase_ == Phase::kStopping) {
    change_->members.insert(change_->members.end(), members.begin(), members.end());
    if (immediate) {
      stop_now(cause);
    }
    return;
  }
  phase_ = Phase::kStopping;
  stop_is_immediate_ = false;
  stop_deadline_.reset();
  first_to_break_.reset();
  change_ = Recovery{};
  change_->cause = cause;
  change_->members = std::move(members);
  change_->old_view = membership_.view()->id;
  change_->detected = change_->told = now_;
  if (is_unplanned(*change_)) {
    if (settling_ && is_unplanned(*settling_)) {  // the recovery before is not over: one long one
      change_->detected = settling_->detected;
      change_->old_view = settling_->old_view;
      change_->detail = settling_->detail;
      change_->members.insert(change_->members.begin(), settling_->members.begin(),
                              settling_->members.end());
    }
    settling_.reset();
  }
  if (immediate) {
    stop_now(cause);
  } else if (cause != "finish" && !is_unplanned(*change_)) {  // else they stop by themselves
    tell_active(true);
  }
}

void Coordinator::stop_now(const std::string& cause) {
  ENSURE(phase_ == Phase::kStopping && change_, "a view is stopped as part of a change");
  if (stop_is_immediate_) {
    if (cause == "lost") {
      change_->cause = cause;
    }
    return;
  }
  if (!is_unplanned(*change_)) {
    change_->detected = now_;
  }
  change_->cause = cause;
  change_->told = now_;
  stop_is_immediate_ = true;
  stop_deadline_ = now_ + options_.stop_timeout;
  tell_active(false);
}

void Coordinator::tell_active(bool at_boundary) {
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kActive) {
      tell_to_stop(id, peer, at_boundary);
    }
  }
}

void Coordinator::tell_to_stop(MemberId id, const Peer& peer, bool at_boundary) {
  const bool ends = stop_asked_ || pause_asked_;
  outbox_.send(id,
               Stop{membership_.view()->id, at_boundary, at_boundary && !ends && !peer.leaving});
}

/// While we stood still ourselves nobody could be heard: what members said in time, or that they
/// came back, may be read only after this tick, and a member that is evicted or given up before
/// takes its sums and its commit with it. What was told since gets no more than its usual time.
void Coordinator::excuse_own_pause(Duration pause) {
  if (stop_deadline_) {
    const Instant latest = std::max(*stop_deadline_, now_ + options_.stop_timeout);
    stop_deadline_ = std::min(*stop_deadline_ + pause, latest);
  }
  for (std::optional<Instant>* since : {&waiting_since_, &collecting_since_, &first_return_}) {
    if (*since) {
      *since = std::min(**since + pause, now_);
    }
  }
}

void Coordinator::check_stop_deadline() {
  if (phase_ != Phase::kStopping || !stop_deadline_ || now_ < *stop_deadline_) {
    return;
  }
  if (!stop_is_immediate_) {  // some left at the boundary, or differ; others do not come so far
    begin_change(true, "group_failed", {});
    return;
  }
  std::vector<MemberId> late;
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kActive) {
      late.push_back(id);
    }
  }
  for (const MemberId id : late) {
    evict(id, "did not leave the group within " +
                  std::to_string(static_cast<long>(to_ms(options_.stop_timeout))) + " ms");
  }
}

void Coordinator::judge_blame() {
  if (phase_ != Phase::kStopping) {
    return;
  }
  if (change_->cause != "group_failed" || !first_to_break_) {
    blame_.view_ended_otherwise();
    return;
  }
  std::vector<BreakReport> reports;
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kStopped) {
      reports.push_back({id, peer.stopped.failed, peer.stopped.finished, peer.stopped.culprit,
                         peer.stopped.unanswered});
    }
  }
  const auto culprit = blame_.group_broke(*first_to_break_, reports);
  if (culprit && is_dispensable(*culprit)) {
    const std::optional<MemberId> blamed = membership_.at(*culprit).stopped.culprit;
    const bool is_first = *culprit == *first_to_break_;
    if (is_first && !blamed) {
      evict(*culprit, "its group broke again and again, and no other member's");
      return;
    }
    evict(*culprit,
          is_first && blamed == *culprit
              ? "it is cut off: " + membership_.at(*culprit).stopped.detail
              : "other members could not exchange data with it",
          DismissReason::kUnreachable);
  }
}

void Coordinator::go_on() {
  ENSURE(membership_.count(Peer::Phase::kActive) == 0,
         "a new view needs the report of every living member");
  judge_claims();
  judge_blame();
  if (judge_dispute() || end_if_over()) {
    return;
  }
  if (pause_asked_ && !is_finishing_) {
    pause();
    return;
  }
  dismiss_leavers();
  if (const auto lack = missing_workers()) {
    wait(*lack);
    return;
  }
  if (const auto lack = missing_quorum()) {
    wait_for_quorum(*lack);
    return;
  }
  publish();
}

void Coordinator::pause() {
  if (phase_ != Phase::kPaused) {
    phase_ = Phase::kPaused;
    change_.reset();
    waiting_since_.reset();
    outbox_.note("paused", std::nullopt, "");
  }
}

/// What the next view lacks, if it lacks members. The first one waits for all.
std::optional<std::string> Coordinator::missing_workers() const {
  const std::size_t least = std::max<std::size_t>(options_.min_workers, 1);
  const std::size_t initial = std::max<std::size_t>(options_.initial_workers, least);
  const bool waited_long = waiting_since_ && now_ - *waiting_since_ >= options_.min_workers_timeout;
  const std::size_t members =
      membership_.count(Peer::Phase::kReady) + membership_.count(Peer::Phase::kStopped);
  if (!membership_.view() && !waited_long && members < initial) {
    return std::to_string(members) + " of " + std::to_string(initial) +
           (options_.counts_as_worker ? " members are ready" : " workers are ready");
  }
  const std::size_t workers = membership_.ready_workers();
  if (workers < least) {
    return std::to_string(workers) + " of " + std::to_string(least) + " workers are ready";
  }
  return std::nullopt;
}

void Coordinator::wait(const std::string& detail) {
  if (!waiting_since_ && (membership_.view() || !membership_.candidates().empty())) {
    waiting_since_ = now_;
  }
  if (phase_ != Phase::kWaiting) {
    phase_ = Phase::kWaiting;
    outbox_.note("waiting", std::nullopt, detail);
  }
}

void Coordinator::check_waiting_time() {
  if (phase_ != Phase::kWaiting || !waiting_since_ ||
      now_ - *waiting_since_ < options_.min_workers_timeout || !missing_workers()) {
    return;
  }
  end(Outcome::kTooFewWorkers,
      std::to_string(membership_.ready_workers()) + " workers are ready, " +
          std::to_string(options_.min_workers) + " are needed",
      membership_.view().has_value());
}

}  // namespace mayfly::elastic
