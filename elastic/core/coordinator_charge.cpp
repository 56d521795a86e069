#include "elastic/core/coordinator.hpp"

// Whether this coordinator is in charge: it asks the members that come back what they do, then
// gives them their places or sends them away. coordinator_decisions.cpp has what it decides then.

namespace mayfly::elastic {

void Coordinator::begin() {
  if (options_.standby) {
    if (term_.job() != 0) {  // the one before us has led in the incarnation on record
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

/// From now on members are awaited and asked what they do, also those that are here already. A job
/// without a view yet is led by the coordinator that started it, and needs nobody's consent.
void Coordinator::collect() {
  const bool waits = membership_.view() || options_.standby || end_.has_ended_before();
  phase_ = waits ? JobPhase::kResuming : JobPhase::kWaiting;
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
    // Members that come back were not told of the end; those that do not come were, or are lost.
    // Nothing is left to agree on, so no majority is needed.
    if (returns_.is_over(membership_, now_)) {
      place_all();
      end(end_.once_more(membership_));
    }
    return;
  }
  const bool is_alone = membership_.peers().empty() && returns_.is_over(membership_, now_);
  if (options_.quorum && end_.is_stop_asked() && is_alone) {
    // Nobody is here to be stopped. The job may go on elsewhere, but not here: the stop would
    // otherwise end it whenever it comes to this coordinator.
    end(*end_.decide(membership_, false));
    return;
  }
  if (!returns_.is_due(membership_, end_.is_stop_asked(), now_)) {
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
      // Members alone have told us of it, and who goes on with our log has to know it.
      outbox_.append(log_record::ViewPublished{*view});
      view_on_record_ = view->id;
    }
    outbox_.add(coordinator_effect::ViewTakenOver{*view});
  }
  quorum_.found();
  stalls_.restart();
  place_all();
  for (const MemberId id : absent) {
    outbox_.note("lost", id, "it did not come back");
  }
  if (view && membership_.count(Peer::Phase::kActive) < view->members.size()) {
    begin_change(true, absent.empty() ? ChangeCause::kGroupFailed : ChangeCause::kLost, absent);
  }
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

/// It comes when we are in charge: it was lost, and its view is not replaced yet.
void Coordinator::place_late(MemberId id, const Peer& peer) {
  if (has_part(*peer.resume) && phase_ == JobPhase::kRunning) {
    dismiss_outdated(id);
    return;
  }
  place(id);
  if (peer.phase() != Peer::Phase::kActive) {
    return;
  }
  if (phase_ == JobPhase::kStopping) {
    tell_to_stop({id}, !change_.is_immediate());
  } else {
    phase_ = JobPhase::kRunning;
    begin_change(true, ChangeCause::kLost);
  }
}

/// The job has gone on without it. It may join as a new member.
void Coordinator::dismiss_outdated(MemberId id) {
  outbox_.note("evicted", id, "the job went on without it");
  dismiss(id, {DismissReason::kEvicted, false, "the job went on without this member", true});
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
  if (quorum_.is_out_of_patience(now_)) {
    send_members_elsewhere(quorum_.reason_to_wait(membership_).value_or("no majority came here"));
  }
  if (!options_.standby && quorum_.has_idled(options_.min_workers_timeout, now_)) {
    end({Outcome::kTooFewWorkers, "no majority of the members came back", false});
  }
}

/// Perhaps there are enough members elsewhere. Those that come back must say again whom they obey.
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
