#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"
#include "elastic/core/next_view.hpp"

// How a view ends and what follows: every event sets facts, then advance() decides once.

namespace mayfly::elastic {
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
  } else if (std::vector<MemberId> observers =
                 observers_to_start(membership_, now_, options_.start_together);
             !observers.empty()) {
    begin_change(false, "promote", std::move(observers));
  }
}

void Coordinator::begin_change(bool immediate, const std::string& cause,
                               std::vector<MemberId> members) {
  ENSURE(membership_.view() && (phase_ == Phase::kRunning || phase_ == Phase::kStopping),
         "only a published view can end");
  const bool is_ending = std::exchange(phase_, Phase::kStopping) == Phase::kStopping;
  tell(is_ending
           ? change_.add(now_, immediate, cause, std::move(members))
           : change_.begin(now_, membership_.view()->id, immediate, cause, std::move(members)));
}

void Coordinator::tell(ViewChange::Tell what) {
  if (what == ViewChange::Tell::kNothing) {
    return;
  }
  for (const MemberId id : membership_.active()) {
    tell_to_stop(id, what == ViewChange::Tell::kAtBoundary);
  }
}

void Coordinator::tell_to_stop(MemberId id, bool at_boundary) {
  const bool ends = stop_asked_ || pause_asked_;
  const bool stays = at_boundary && !ends && !membership_.at(id).leaving;
  outbox_.send(id, Stop{membership_.view()->id, at_boundary, stays});
}

/// While we stood still ourselves nobody could be heard: what members said in time, or that they
/// came back, may be read only after this tick, and a member that is evicted or given up before
/// takes its sums and its commit with it. What was told since gets no more than its usual time.
void Coordinator::excuse_own_pause(Duration pause) {
  change_.excuse(pause, now_);
  for (std::optional<Instant>* since : {&waiting_since_, &collecting_since_, &first_return_}) {
    if (*since) {
      *since = std::min(**since + pause, now_);
    }
  }
}

void Coordinator::check_stop_deadline() {
  if (phase_ != Phase::kStopping || !change_.is_overdue(now_)) {
    return;
  }
  if (!change_.is_immediate()) {  // some left at the boundary, or differ; others do not come so far
    begin_change(true, "group_failed", {});
    return;
  }
  for (const MemberId id : membership_.active()) {
    evict(id, "did not leave the group within " +
                  std::to_string(static_cast<long>(to_ms(options_.stop_timeout))) + " ms");
  }
}

void Coordinator::go_on() {
  ENSURE(membership_.count(Peer::Phase::kActive) == 0,
         "a new view needs the report of every living member");
  judge_claims();
  judge_blame();
  if (judge_states() || end_if_over()) {
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
    change_.forget();
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

void Coordinator::publish() {
  const bool is_resumed = membership_.view() && phase_ != Phase::kStopping;
  const View view = make_next_view();
  if (view.committed < membership_.committed()) {
    outbox_.note("restarted", std::nullopt,
                 "every holder of step " + std::to_string(value(membership_.committed())) +
                     " is gone; resuming after " + std::to_string(value(view.committed)));
    membership_.go_back_to(view.committed);
  }
  if (is_resumed) {
    outbox_.note("resumed", std::nullopt, "");
  }
  change_.publish(now_, view, newcomers_in(view, membership_), count_redone(view, membership_));
  const std::optional<View> before = membership_.enter(view, now_, outbox_);
  store_.clear();
  phase_ = Phase::kRunning;
  speeds_.view_began();
  waiting_since_.reset();
  no_quorum_since_.reset();
  idle_since_.reset();
  is_view_active_ = false;
  stalls_.restart();
  announce(view, before, options_.delta_from_members, outbox_);
}

View Coordinator::make_next_view() const {
  const std::optional<View>& last = membership_.view();
  const ViewId id{std::max(last ? value(last->id) : 0, id_base(incarnation_)) + 1};
  ENSURE(incarnation_of(id) == incarnation_, "an incarnation has ids for all its views");
  const auto bases = next_bases(consent());
  ENSURE(bases, "a view is made only with a quorum");
  return make_view(membership_, id, *bases, options_);
}

}  // namespace mayfly::elastic
