#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"
#include "elastic/core/next_view.hpp"

// Part three of the coordinator: its decisions. They are: which members are removed, how a view
// ends and the next one is made, and whether the job waits, pauses or ends. coordinator_charge.cpp
// decides whether this coordinator is in charge, so that it may decide.

namespace mayfly::elastic {

void Coordinator::advance() {
  if (phase_ == JobPhase::kResuming) {
    take_charge_if_due();
  }
  if (phase_ == JobPhase::kEnded || phase_ == JobPhase::kResuming) {
    return;
  }
  const bool may_end = end_.is_stop_requested() && !membership_.is_anyone_active();
  if (!may_end) {  // otherwise a leaving member may have to write the last checkpoint: see go_on()
    dismiss_leavers();
  }
  if (phase_ == JobPhase::kRunning) {
    start_planned_change();
  } else if (!membership_.is_anyone_active()) {
    go_on();
    if (phase_ == JobPhase::kRunning) {
      start_planned_change();  // for requests that arrived during the change of view
    }
  }
}

/// Invariants between any two events, in any order of events. The cost does not grow with the
/// number of members, except for is_anyone_active(), which looks first at the member that it found
/// last.
void Coordinator::check_invariants() {
  const bool runs = phase_ == JobPhase::kRunning || phase_ == JobPhase::kStopping;
  ENSURE(!runs || membership_.view(), "only a published view runs or ends");
  ENSURE(phase_ != JobPhase::kRunning || membership_.is_anyone_active(),
         "a view runs as long as a member of it is at work");
  ENSURE(runs || phase_ == JobPhase::kEnded || !membership_.is_anyone_active(),
         "a job that waits, pauses or resumes has no active member under this coordinator");
  ENSURE((phase_ == JobPhase::kStopping) <= change_.is_under_way(),
         "a view ends as part of a change");
  ENSURE(phase_ != JobPhase::kRunning || !change_.is_under_way(),
         "a change is over when its view is published");
  ENSURE(!change_.is_settling() || membership_.view(), "only a published view settles");
  ENSURE(options_.standby || value(term_.incarnation()) > 0,
         "a coordinator that is no standby has begun an incarnation");
  membership_.check_invariants();
  change_.check_invariants();
  quorum_.check_invariants(membership_);
}

// Removal of members.

void Coordinator::lose(MemberId id, const std::string& detail, bool still_connected) {
  const Peer* peer = membership_.find(id);
  if (peer == nullptr) {
    return;
  }
  const bool was_dismissed = peer->phase() == Peer::Phase::kDismissed;
  // A member that can still receive is told. Not with a quorum, because its consent may still be
  // needed: then it is told when it returns and the view is over.
  if (still_connected && !was_dismissed && !options_.quorum) {
    outbox_.send(id, Dismiss{DismissReason::kEvicted, false, detail, true});
  }
  outbox_.add(coordinator_effect::Disconnect{id});
  outbox_.note(was_dismissed ? "disconnected" : "lost", id, detail);
  remove(id, detail);
}

void Coordinator::evict(const Accusation& accused, const std::string& kind) {
  outbox_.send(accused.member, Dismiss{accused.dismissal, false, accused.reason, true});
  membership_.fence(accused.member);
  outbox_.add(coordinator_effect::Disconnect{accused.member});
  outbox_.note(kind, accused.member, accused.reason);
  remove(accused.member, accused.reason);
}

void Coordinator::evict_all(const std::vector<Accusation>& accused) {
  for (const Accusation& each : accused) {
    evict(each);
  }
  if (!accused.empty()) {
    membership_.forget_claims();
  }
}

void Coordinator::remove(MemberId id, const std::string& why) {
  const bool is_change = (phase_ == JobPhase::kRunning || phase_ == JobPhase::kStopping) &&
                         membership_.at(id).phase() != Peer::Phase::kDismissed &&
                         membership_.is_in_view(id);
  detector_.forget(id);
  stalls_.forget(id);
  membership_.remove(id);
  if (is_change) {
    begin_change(true, ChangeCause::kLost, {id});
    change_.explain_if_open(why);
  }
}

void Coordinator::dismiss(MemberId id, const Dismiss& message) {
  membership_.dismiss(id);
  detector_.forget(id);
  stalls_.forget(id);
  outbox_.send(id, message);
}

void Coordinator::dismiss_leavers() {
  if (!membership_.has_leavers()) {
    return;
  }
  const bool is_view_ending = phase_ == JobPhase::kStopping && membership_.is_anyone_active();
  for (const auto& [id, peer] : membership_.peers()) {
    if (!peer.is_leaving()) {
      continue;
    }
    const bool is_free = peer.phase() == Peer::Phase::kLoading ||
                         (peer.is_candidate() && !is_view_ending &&
                          membership_.may_leave(id, phase_ == JobPhase::kRunning));
    if (is_free) {
      dismiss(id, {DismissReason::kDrained, false, peer.leave_reason()});
      outbox_.note("left", id, peer.leave_reason());
    }
  }
}

// From one view to the next.

void Coordinator::start_planned_change() {
  if (end_.is_stop_requested()) {
    if (!end_.is_finishing()) {  // otherwise the members detect by themselves that the job is over
      begin_change(false, ChangeCause::kStop);
    }
  } else if (end_.is_pause_requested()) {
    begin_change(false, ChangeCause::kPause);
  } else if (auto planned = planned_change(membership_, now_, options_.start_together)) {
    begin_change(false, planned->cause, std::move(planned->members));
  }
}

void Coordinator::begin_change(bool immediate, ChangeCause cause, std::vector<MemberId> members) {
  ENSURE(membership_.view() && (phase_ == JobPhase::kRunning || phase_ == JobPhase::kStopping),
         "only a published view can end");
  const bool is_ending = std::exchange(phase_, JobPhase::kStopping) == JobPhase::kStopping;
  const ViewChange::StopOrder order =
      is_ending ? change_.add(now_, immediate, cause, std::move(members))
                : change_.begin(now_, membership_.view()->id, immediate, cause, std::move(members));
  if (order != ViewChange::StopOrder::kNone) {
    send_stop(membership_.active(), order == ViewChange::StopOrder::kAtBoundary);
  }
}

void Coordinator::send_stop(std::vector<MemberId> members, bool at_boundary) {
  const auto stays = [this, at_boundary](MemberId id) {
    return at_boundary && !end_.is_requested() && !membership_.at(id).is_leaving();
  };
  const auto others = std::stable_partition(members.begin(), members.end(), stays);
  const Stop stop{membership_.view()->id, at_boundary, false};
  outbox_.send_to_all({members.begin(), others}, Stop{stop.view, at_boundary, true});
  outbox_.send_to_all({others, members.end()}, stop);
}

void Coordinator::check_stop_deadline() {
  if (phase_ != JobPhase::kStopping || !change_.is_overdue(now_)) {
    return;
  }
  if (!change_.is_immediate()) {  // some members stopped or disagree: no boundary is reached
    change_.insist(now_);
    send_stop(membership_.active(), false);
    return;
  }
  for (const MemberId id : membership_.active()) {
    evict({id, "did not leave the group within " +
                   std::to_string(static_cast<long>(to_ms(options_.stop_timeout))) + " ms"});
  }
}

/// No member is active any more: publishes the next view, or waits, pauses or ends the job.
void Coordinator::go_on() {
  ENSURE(!membership_.is_anyone_active(), "a new view needs the report of every living member");
  if (phase_ == JobPhase::kStopping) {
    if (const auto deadlock = judge_ended_view()) {
      end(*deadlock);
      return;
    }
  }
  const bool can_go_on = !quota_.lack(membership_, now_) && !quorum_.lack(membership_);
  if (const auto ending = end_.decide(membership_, can_go_on)) {
    end(*ending);
    return;
  }
  if (end_.is_pause_requested() && !end_.is_finishing()) {
    if (std::exchange(phase_, JobPhase::kPaused) != JobPhase::kPaused) {
      change_.forget();
      quota_.met();
      outbox_.note("paused", std::nullopt, "");
    }
    return;
  }
  dismiss_leavers();
  const auto no_majority = quorum_.lack(membership_);
  if (!no_majority) {
    quorum_.found();
  }
  if (no_majority && !membership_.candidates().empty()) {
    wait_for_quorum(*no_majority);  // even if there are too few: another coordinator may need them
  } else if (const auto too_few = quota_.lack(membership_, now_)) {
    wait(*too_few);
  } else if (options_.steps_need_all_members && has_lost_state(membership_)) {
    offer_checkpoint();
  } else {
    publish();
  }
}

/// No member has the job's state any more. The candidates must join again, because a worker is
/// offered the newest checkpoint only when it joins.
void Coordinator::offer_checkpoint() {
  const std::string why = "every holder of step " + std::to_string(value(membership_.committed())) +
                          " is lost; a checkpoint may be newer than the state of this member";
  for (const auto& candidate : membership_.candidates()) {
    outbox_.note("left", candidate.first, why);
    dismiss(candidate.first, {DismissReason::kEvicted, false, why, true});
  }
  offers_checkpoint_ = true;
  wait(why);
}

void Coordinator::wait(const std::string& detail) {
  quota_.wait(membership_, now_);
  if (std::exchange(phase_, JobPhase::kWaiting) != JobPhase::kWaiting) {
    outbox_.note("waiting", std::nullopt, detail);
  }
}

void Coordinator::publish() {
  ENSURE(!quorum_.lack(membership_), "a view is made only with the consent of a majority");
  ENSURE(!quota_.lack(membership_, now_), "a view is made only of enough workers");
  const bool is_resumed = membership_.view() && phase_ != JobPhase::kStopping;
  View view =
      make_view(membership_, quorum_.next_members(membership_),
                term_.view_id_after(membership_.view()), quorum_.bases(membership_), options_);
  if (options_.steps_need_all_members && view.committed < membership_.committed()) {
    outbox_.note("restarted", std::nullopt,
                 "every holder of step " + std::to_string(value(membership_.committed())) +
                     " is lost; resuming after " + std::to_string(value(view.committed)));
    membership_.go_back_to(view.committed);
  }
  if (is_resumed) {
    outbox_.note("resumed", std::nullopt, "");
  }
  change_.publish(now_, view, newcomers_in(view, membership_), count_redone(view, membership_));
  const std::optional<View> before = membership_.enter(view, now_, outbox_);
  store_.clear();
  phase_ = JobPhase::kRunning;
  offers_checkpoint_ = false;
  speeds_.view_began();
  quota_.met();
  quorum_.view_changed();
  stalls_.restart();
  view_on_record_ = view.id;
  announce(std::move(view), before, options_.delta_from_members, outbox_);
}

/// The end is recorded first, and then all members are told. If the coordinator dies in between,
/// members still wait and servers may still run; the next coordinator with this log ends the job
/// once more.
void Coordinator::end(const JobEnd::Ending& ending) {
  ENSURE(phase_ != JobPhase::kEnded, "a job ends once");
  if (term_.job() != 0) {  // a standby that has not led has no log of the job
    outbox_.append(log_record::JobEnded{ending.outcome, ending.detail}, true);
  }
  const std::optional<MemberId> writer =
      ending.with_checkpoint ? holder_of_newest_state(membership_) : std::optional<MemberId>{};
  ended_in_charge_ = end_.has_ended_before() || is_in_charge();
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase() != Peer::Phase::kDismissed) {
      dismiss(id, {reason_of(ending.outcome), id == writer, ending.detail});
    }
  }
  phase_ = JobPhase::kEnded;
  store_.clear();
  outbox_.add(coordinator_effect::JobEnded{ending.outcome, ending.detail});
}

// Judgement of members.

/// Every member of the view that ends has stopped: evicts those that must not be in the next view.
/// Returns how the job ends if it cannot be decided which members are right.
std::optional<JobEnd::Ending> Coordinator::judge_ended_view() {
  evict_all(claims_.false_steps(membership_));
  evict_all(claims_.false_ends(membership_));
  if (const auto first = change_.first_to_break()) {
    const auto accused = judge_break(blame_, *first, membership_);
    if (accused && quorum_.can_spare(accused->member, membership_)) {
      evict(*accused);
    }
  } else {
    blame_.view_ended_otherwise();
  }
  const DisputeVerdict verdict = judge_dispute(membership_, options_.state_part_names);
  if (verdict.deadlock) {
    return JobEnd::Ending{Outcome::kFailed, *verdict.deadlock, false};
  }
  for (const MemberId odd : verdict.odd) {
    evict({odd, verdict.reason, DismissReason::kCorrupted}, "corrupted");
  }
  if (!verdict.odd.empty()) {
    change_.found_corruption();
  }
  return std::nullopt;
}

void Coordinator::judge_stalls() {
  if (phase_ != JobPhase::kRunning && phase_ != JobPhase::kStopping) {
    return;
  }
  const std::vector<MemberId> active = membership_.active();
  for (const Stall& stall : stalls_.judge(active)) {
    const std::string what = describe(stall, membership_.view(), options_.bucket_names);
    if (!stall.evict) {
      outbox_.note("stalled", stall.member, what);
    } else if (another_member_works(membership_.peers(), stall.member)) {
      evict({stall.member, "hangs: " + what});
    }
  }
  if (phase_ == JobPhase::kRunning && stalls_.group_is_stuck(active)) {
    const std::string why = "every member waits for an all-reduce; the group is formed again";
    outbox_.note("stalled", std::nullopt, why);
    begin_change(true, ChangeCause::kGroupFailed);
    change_.explain(why);
  }
}

void Coordinator::judge_speeds() {
  if (!is_undisturbed() || end_.is_requested()) {
    return;
  }
  const SpeedJudge::Verdict verdict = speeds_.judge(now_, membership_);
  if (const auto& slow = verdict.straggler) {
    membership_.wants_to_leave(slow->member, slow->reason);
    outbox_.note("straggler", slow->member, slow->reason);
  } else if (verdict.rebalance) {
    outbox_.note("rebalance", std::nullopt, *verdict.rebalance);
    begin_change(false, ChangeCause::kRebalance);
  }
}

}  // namespace mayfly::elastic
