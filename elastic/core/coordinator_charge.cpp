#include "elastic/core/coordinator.hpp"

// Part two of the coordinator: whether it is in charge of the job. It asks returning members what
// they do, and then gives them their places again or dismisses them. coordinator_decisions.cpp has
// the decisions of a coordinator that is in charge.

namespace mayfly::elastic {

void Coordinator::on_member_connected_again(const coordinator_event::WorkerConnected& event) {
  const Hello& hello = event.hello;
  const MemberId id = hello.member;
  const auto refuse = [&](const std::string& reason, Refusal refusal) {
    outbox_.add(coordinator_effect::Refuse{event.connection, reason, refusal});
  };
  if (has_ended_uncharged()) {
    refuse("this coordinator has ended, the job may go on", Refusal::kElsewhere);
    return;
  }
  if (!is_turn_of(hello)) {
    refuse("members of another job are here or come first", Refusal::kElsewhere);
    return;
  }
  // A worker of an earlier job at this address has the same token, and perhaps a member's id.
  const bool is_ours = !term_.is_of_another_job(hello);
  if (is_ours && membership_.find(id) != nullptr) {  // messages on its old connection may be lost
    lose(id, "it has connected again", false);
  }
  if (const auto refused = reason_to_turn_away(hello, phase_, term_, membership_)) {
    refuse(refused->reason, refused->refusal);
    return;
  }
  const bool obeys_another = term_.obeys_another(hello);
  if (end_.has_ended_before() && obeys_another) {  // the job goes on under the other one
    refuse("the job of this coordinator has ended", Refusal::kElsewhere);
    return;
  }
  term_.admit_again(hello, outbox_);
  if (obeys_another) {
    term_.begin(next(hello.incarnation), outbox_);  // it would not obey us in a lower one
    quorum_.incarnation_began();
    collect();
  }
  membership_.take_back(id, hello, is_in_charge());
  detector_.on_message(id, now_);
  outbox_.add(coordinator_effect::Accept{event.connection, id});
  outbox_.send(id, term_.welcome_back(id));
  outbox_.note(hello.joins_again ? "joins_again" : "returned", id, hello.host);
}

/// A standby learns its job from the members that connect to it. Workers of an earlier job may be
/// among them, which still look for a coordinator. So until a standby has been in charge, it knows
/// its job only while members of that job are connected. If members of several jobs try to connect,
/// the jobs take turns.
bool Coordinator::is_turn_of(const Hello& hello) {
  if (has_led() || hello.job == 0) {
    return true;
  }
  if (!membership_.peers().empty()) {
    if (!term_.is_of_another_job(hello)) {
      return true;
    }
    next_job_ = {hello.job, now_};
    return false;
  }
  const bool is_another_awaited =
      next_job_ && next_job_->job != hello.job && now_ - next_job_->asked < options_.quorum_timeout;
  if (is_another_awaited) {
    return false;
  }
  next_job_.reset();
  if (term_.is_of_another_job(hello)) {
    term_.forget_job();
    membership_ = Membership(options_);
    store_.clear();
    quorum_.incarnation_began();
    quorum_.view_changed();
    collect();
  }
  return true;
}

/// With a quorum, absent members may obey another coordinator, which is then in charge of the job
/// and of the servers on which they run. Members that were asked to join again with a checkpoint
/// are absent for a moment, but have consented.
bool Coordinator::is_in_charge() const {
  if (!options_.quorum) {
    return true;
  }
  if (phase_ == JobPhase::kEnded) {
    return ended_in_charge_;
  }
  if (!has_begun_ || phase_ == JobPhase::kResuming || quorum_.is_waiting()) {
    return false;
  }
  const bool has_members = phase_ == JobPhase::kRunning || phase_ == JobPhase::kStopping;
  return has_members || offers_checkpoint_ || !quorum_.lack(membership_);
}

void Coordinator::begin() {
  if (options_.standby) {
    if (term_.job() != 0) {  // an earlier coordinator has led in the recorded incarnation
      term_.start(outbox_);
    }
    collect();
    return;
  }
  term_.start(outbox_);
  if (membership_.view() || end_.has_ended_before()) {
    collect();
  }
}

/// From now on all members must report what they do, also those that are connected. A job without a
/// view yet is led by the coordinator that started it, without any member's consent.
void Coordinator::collect() {
  const bool waits = membership_.view() || options_.standby || end_.has_ended_before();
  phase_ = waits ? JobPhase::kResuming : JobPhase::kWaiting;
  offers_checkpoint_ = false;
  returns_.begin(now_);
  quorum_.asked_again();
  quota_.met();
  change_.forget_all();
  membership_.ask_all_again();
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase() != Peer::Phase::kDismissed) {
      outbox_.send(id, term_.welcome_back(id));
    }
  }
}

void Coordinator::take_charge_if_due() {
  if (end_.has_ended_before()) {
    // Members that return do not know yet that the job has ended; the others know it, or are lost.
    // Nothing is left to decide, so no majority is needed.
    if (returns_.is_over(membership_, now_)) {
      place_all();
      end(end_.once_more(membership_));
    }
    return;
  }
  const bool is_alone = membership_.peers().empty() && returns_.is_over(membership_, now_);
  if (options_.quorum && end_.is_stop_requested() && is_alone) {
    // There is no member to stop. The job may continue under another coordinator. If this one
    // continued to wait, it would end the job as soon as the members connected to it.
    end(*end_.decide(membership_, false));
    return;
  }
  if (!returns_.is_due(membership_, end_.is_stop_requested(), now_)) {
    return;
  }
  const auto lack = quorum_.reason_to_wait(membership_);
  if (lack && options_.quorum && !all_run_on(membership_) && !only_finished_returned(membership_)) {
    if (quorum_.wait(returns_.first_return(), now_)) {
      outbox_.note("no_quorum", std::nullopt, *lack);
    }
    return;
  }
  take_charge();
}

void Coordinator::take_charge() {
  outbox_.note("in_charge", std::nullopt,
               "incarnation " + std::to_string(value(term_.incarnation())));
  const std::optional<View>& view = membership_.view();
  const std::vector<MemberId> absent = view ? membership_.missing() : std::vector<MemberId>{};
  phase_ = view ? JobPhase::kRunning : JobPhase::kWaiting;
  if (view) {
    if (view_on_record_ != view->id) {
      // Only members have reported this view, and a coordinator that continues this log must know
      // it.
      outbox_.append(log_record::ViewPublished{*view});
      view_on_record_ = view->id;
    }
    outbox_.add(coordinator_effect::ViewTakenOver{*view});
  }
  quorum_.found();
  stalls_.restart();
  place_all();
  for (const MemberId id : absent) {
    outbox_.note("lost", id, "it did not return");
  }
  if (view && membership_.count(Peer::Phase::kActive) < view->members.size()) {
    begin_change(true, absent.empty() ? ChangeCause::kGroupFailed : ChangeCause::kLost, absent);
  }
  membership_.check_members();
}

void Coordinator::place_all() {
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase() == Peer::Phase::kReturning && peer.resume) {
      place(id);
    }
  }
}

/// A returned member takes the place that its report gives it.
void Coordinator::place(MemberId id) {
  if (!membership_.place(id, now_)) {
    dismiss_outdated(id);
  }
}

/// A member returns to a coordinator that is in charge: it was lost, and its view has not been
/// replaced yet.
void Coordinator::place_returned(MemberId id, const Peer& peer) {
  if (has_part(*peer.resume) && phase_ == JobPhase::kRunning) {
    dismiss_outdated(id);
    return;
  }
  place(id);
  if (peer.phase() != Peer::Phase::kActive) {
    return;
  }
  if (phase_ == JobPhase::kStopping) {
    send_stop({id}, !change_.is_immediate());
  } else {
    phase_ = JobPhase::kRunning;
    begin_change(true, ChangeCause::kLost);
  }
}

/// The job has continued without this member, which may join again as a new one.
void Coordinator::dismiss_outdated(MemberId id) {
  outbox_.note("evicted", id, "the job continued without it");
  dismiss(id, {DismissReason::kEvicted, false, "the job continued without this member", true});
}

void Coordinator::wait_for_quorum(const std::string& lack) {
  if (quorum_.wait(now_, now_)) {
    outbox_.note("no_quorum", std::nullopt, lack);
  }
  wait(lack);
}

void Coordinator::check_quorum_time() {
  const bool waits = phase_ == JobPhase::kWaiting || phase_ == JobPhase::kResuming;
  if (!options_.quorum || !waits) {
    return;
  }
  if (quorum_.has_waited_too_long(now_)) {
    send_members_elsewhere(
        quorum_.reason_to_wait(membership_).value_or("no majority returned to this coordinator"));
  }
  if (!options_.standby && quorum_.has_idled(options_.min_workers_timeout, now_)) {
    end({Outcome::kTooFewWorkers, "no majority of the members returned", false});
  }
}

/// Sends all members to another coordinator, where enough others may be connected for a majority.
/// Members that return to this one must report again which coordinator they obey.
void Coordinator::send_members_elsewhere(const std::string& detail) {
  outbox_.note("no_quorum", std::nullopt, "members are sent to another coordinator: " + detail);
  const std::uint32_t skip = quorum_.places_to_skip(now_);
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase() != Peer::Phase::kDismissed) {
      outbox_.send(id, NoQuorum{detail, skip});
    }
    outbox_.add(coordinator_effect::Disconnect{id});
    detector_.forget(id);
  }
  while (!membership_.peers().empty()) {
    membership_.remove(membership_.peers().begin()->first);
  }
  collect();
}

}  // namespace mayfly::elastic
