#include "elastic/core/coordinator.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

// Part one of the coordinator: events from outside and messages of members, which it records.
// coordinator_decisions.cpp decides what follows from them.

namespace mayfly::elastic {
namespace {

/// For std::visit: one callable of several lambdas, each for the alternatives that it takes.
template <typename... Lambdas>
struct Overloaded : Lambdas... {
  using Lambdas::operator()...;
};
template <typename... Lambdas>
Overloaded(Lambdas...) -> Overloaded<Lambdas...>;

}  // namespace

const char* name_of(JobPhase phase) {
  switch (phase) {
    case JobPhase::kStandby: return "standby";
    case JobPhase::kResuming: return "resuming";
    case JobPhase::kWaiting: return "waiting";
    case JobPhase::kRunning: return "running";
    case JobPhase::kStopping: return "stopping";
    case JobPhase::kPaused: return "paused";
    case JobPhase::kEnded: return "ended";
  }
  UNREACHABLE("every phase has a name");
}

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      term_(options_),
      membership_(options_),
      quorum_(options_),
      quota_(options_),
      returns_(options_),
      change_(options_),
      detector_(options_.silence_max, options_.starved_max),
      stalls_(options_.stalls),
      claims_(options_),
      speeds_(options_) {
  ENSURE(options_.microbatches >= 1 && options_.microbatches <= kMicrobatchesMax,
         "a step has 1 to kMicrobatchesMax microbatches");
  ENSURE(options_.view_max >= options_.min_workers && options_.view_max >= options_.initial_workers,
         "a view may have as many members as are waited for");
  ENSURE(options_.quorum || !options_.standby, "only a majority makes it safe to take over");
}

Coordinator::Coordinator(CoordinatorOptions options, const LogContents& contents)
    : Coordinator(std::move(options)) {
  ENSURE(!options_.standby || !contents.view, "a coordinator that has led is no standby");
  if (contents.job == 0) {
    return;  // the earlier coordinator died before it had started a job
  }
  term_.restore(contents);
  end_.restore(contents);
  if (contents.view) {
    membership_.restore(*contents.view);
    view_on_record_ = contents.view->id;
  }
}

JobPhase Coordinator::phase() const {
  const bool knows_no_job = options_.standby && !membership_.view();
  return phase_ == JobPhase::kResuming && knows_no_job ? JobPhase::kStandby : phase_;
}

bool Coordinator::is_undisturbed() const {
  return phase_ == JobPhase::kRunning && !change_.is_settling();
}

std::vector<MemberStatus> Coordinator::members() const {
  return status_of(membership_, detector_, stalls_, phase_ == JobPhase::kRunning, now_);
}

// Events from outside.

std::vector<CoordinatorEffect> Coordinator::handle(Instant now, const CoordinatorEvent& event) {
  ENSURE(outbox_.empty(), "effects are handed out with the event that caused them");
  now_ = now;
  if (!std::exchange(has_begun_, true)) {
    begin();
  }
  dispatch(event);
  if (!decides_nothing(event)) {
    advance();
    check_invariants();
  }
  return outbox_.take();
}

void Coordinator::dispatch(const CoordinatorEvent& event) {
  namespace ev = coordinator_event;
  std::visit(Overloaded{
                 [this](const ev::WorkerConnected& e) {
                   if (e.hello.member == MemberId{}) {
                     on_worker_connected(e);
                   } else {
                     on_member_connected_again(e);
                   }
                 },
                 [this](const ev::Received& e) { on_received(e.member, e.message); },
                 [this](const ev::ConnectionLost& e) { lose(e.member, e.detail, false); },
                 [this](const ev::SentinelReport& e) {
                   if (e.is_dead) {
                     on_gone(e.member, e.incarnation, e.author);
                   }
                   lose(e.member, e.detail, true);
                 },
                 [this](const ev::SentinelBeat& e) { on_sentinel_beat(e); },
                 [this](const ev::HostAnswers& e) { detector_.host_answers(e.member, now_); },
                 [this](const ev::DrainAsked& e) { on_drain_asked(e.member, e.reason); },
                 [this](const ev::PauseAsked& e) {
                   // A standby without a job has nothing to pause, and no log of the job.
                   if (term_.job() != 0 && end_.request_pause(e.pause)) {
                     outbox_.append(log_record::Paused{e.pause});
                   }
                 },
                 [this](const ev::StopAsked& e) { end_.request_stop(e.reason); },
                 [this](const ev::FailAsked& e) {
                   if (phase_ != JobPhase::kEnded && !end_.has_ended_before()) {
                     end({Outcome::kFailed, e.reason, false});
                   }
                 },
                 [this](const ev::Tick&) { on_tick(); },
             },
             event);
}

/// Whether advance() is skipped after this event. Such events are very frequent, and decisions that
/// they make possible may wait until the next tick: otherwise a large job would look at every
/// member for each event.
bool Coordinator::decides_nothing(const CoordinatorEvent& event) {
  if (std::holds_alternative<coordinator_event::SentinelBeat>(event)) {
    return true;
  }
  const auto* received = std::get_if<coordinator_event::Received>(&event);
  if (received == nullptr) {
    return false;
  }
  const Message& message = received->message;
  if (std::holds_alternative<Stopped>(message)) {
    return phase_ == JobPhase::kStopping && membership_.is_anyone_active();
  }
  return std::holds_alternative<Heartbeat>(message) || std::holds_alternative<Progress>(message) ||
         std::holds_alternative<Formed>(message) || std::holds_alternative<Synced>(message) ||
         std::holds_alternative<Report>(message);
}

void Coordinator::on_worker_connected(const coordinator_event::WorkerConnected& event) {
  const auto refuse = [&](const std::string& reason, Refusal refusal = Refusal::kFinal) {
    outbox_.add(coordinator_effect::Refuse{event.connection, reason, refusal});
  };
  if (end_.has_ended_before()) {
    refuse("the job has ended");
    return;
  }
  if (has_ended_uncharged()) {
    refuse("this coordinator has ended and was not in charge", Refusal::kElsewhere);
    return;
  }
  if (phase_ == JobPhase::kResuming && options_.quorum) {
    const std::string why =
        membership_.view() ? "" : ": " + quorum_.reason_to_wait(membership_).value_or("");
    refuse("this coordinator is not in charge" + why, Refusal::kElsewhere);
    return;
  }
  if (const auto reason = reason_to_refuse(event.hello, phase_, term_, membership_)) {
    refuse(*reason);
    return;
  }
  const MemberId id = term_.new_member_id();
  membership_.connect(id, event.hello, now_);
  detector_.on_message(id, now_);
  outbox_.add(coordinator_effect::Accept{event.connection, id});
  outbox_.send(id, term_.welcome(id, membership_.view().has_value()));
  outbox_.note("connected", id, event.hello.host);
}

/// Messages of a dismissed member change nothing any more. Only its reports, for example of the
/// checkpoint that it was asked to write, are still passed to the engine.
void Coordinator::on_received(MemberId id, const Message& message) {
  if (const auto* left = std::get_if<Left>(&message)) {  // also from an evicted member
    // The member sends this only to the coordinator that it obeys.
    on_gone(id, left->incarnation, options_.identity);
    return;
  }
  const Peer* peer = membership_.find(id);
  if (peer == nullptr) {
    return;
  }
  if (const auto* report = std::get_if<Report>(&message)) {
    constexpr float kAgeMaxMs = 1e9F;  // longer than any queue of reports
    const Duration age(static_cast<std::int64_t>(std::min(report->age_ms, kAgeMaxMs) * 1e6));
    outbox_.add(coordinator_effect::ReportReceived{id, report->payload, now_ - age});
  }
  if (phase_ == JobPhase::kEnded || peer->phase() == Peer::Phase::kDismissed) {
    return;
  }
  detector_.on_message(id, now_);
  if (peer->phase() == Peer::Phase::kReturning) {
    on_message_of_returning(id, *peer, message);
  } else {
    on_message_of_member(id, *peer, message);
  }
}

void Coordinator::on_sentinel_beat(const coordinator_event::SentinelBeat& event) {
  const Peer* peer = membership_.find(event.member);
  if (peer == nullptr || peer->phase() == Peer::Phase::kDismissed) {
    return;
  }
  if (event.worker_stopped) {
    detector_.stopped(event.member);
    return;
  }
  detector_.on_message(event.member, now_);
  if (event.position) {
    stalls_.on_heartbeat(event.member, *event.position, now_);
  }
}

void Coordinator::on_drain_asked(MemberId id, const std::string& reason) {
  const Peer* peer = membership_.find(id);
  if (peer == nullptr || peer->phase() == Peer::Phase::kDismissed) {
    outbox_.note("drain_refused", id, "there is no such member");
    return;
  }
  const bool is_spare = peer->phase() == Peer::Phase::kLoading;
  if (!is_spare && !end_.is_stop_requested() && !leaves_somebody(membership_.peers(), id)) {
    outbox_.note("drain_refused", id, "it would leave no member");
    return;
  }
  membership_.wants_to_leave(id, reason);
}

/// While this process was suspended, it could not receive anything: messages that members sent in
/// time, and returning members, may be read only after this tick. A member that is evicted before
/// that takes its sums and its commit with it. Therefore every deadline is extended by the pause.
void Coordinator::on_tick() {
  const std::vector<MemberId> suspects = detector_.suspects(now_);
  change_.extend_deadlines(detector_.own_pause(), now_);
  quota_.extend_deadlines(detector_.own_pause(), now_);
  returns_.extend_deadlines(detector_.own_pause(), now_);
  quorum_.extend_deadlines(detector_.own_pause(), now_);
  for (const MemberId silent : suspects) {
    if (!another_member_works(membership_.peers(), silent) &&
        detector_.silence(silent, now_) < options_.stop_timeout) {
      continue;  // the suspicion may be wrong, and without its last member the job cannot go on
    }
    lose(silent, detector_.reason(silent, now_), true);
  }
  for (const MemberId quiet : detector_.to_probe(now_)) {
    outbox_.add(coordinator_effect::Probe{quiet});
  }
  judge_stalls();
  check_stop_deadline();
  if (phase_ == JobPhase::kWaiting && quota_.is_hopeless(now_) && quota_.lack(membership_, now_)) {
    end({Outcome::kTooFewWorkers, quota_.reason_to_end(membership_),
         membership_.view().has_value()});
  }
  judge_speeds();
  check_quorum_time();
}

// Before this coordinator is in charge: members return that have lost their connection to it or to
// another coordinator. Until then it decides nothing and disturbs no member; if all members of the
// last view return and still run it, nothing changes at all.

/// The messages of a returning member are ignored until its Resume has arrived.
void Coordinator::on_message_of_returning(MemberId id, const Peer& peer, const Message& message) {
  if (const auto* resume = std::get_if<Resume>(&message)) {
    on_resume(id, peer, *resume);
  } else if (!peer.resume) {
    return;
  } else if (const auto* set = std::get_if<StoreSet>(&message)) {
    on_store_set(id, *set);
  } else if (const auto* get = std::get_if<StoreGet>(&message)) {
    on_store_get(id, *get);
  } else if (const auto committed = membership_.amend_report(id, message)) {
    quorum_.committed(id, peer.resume->view->id, *committed, membership_);
  }
}

void Coordinator::on_resume(MemberId id, const Peer& peer, const Resume& resume) {
  if (resume.incarnation != term_.incarnation() || !makes_sense(id, resume)) {
    return;
  }
  membership_.resumed(id, resume);
  const std::optional<View>& last = membership_.view();
  if (resume.view && (!last || resume.view->id > last->id)) {
    membership_.adopt(*resume.view);
    store_.clear();
    quorum_.view_changed();
    if (phase_ != JobPhase::kResuming) {  // another coordinator has continued this job
      collect();
      return;
    }
  }
  if (last && resume.view && resume.view->id == last->id && resume.is_active) {
    quorum_.view_is_active();
  }
  membership_.raise_committed(resume.committed);
  if (phase_ == JobPhase::kResuming) {
    returns_.on_report(now_);
  } else {
    place_returned(id, peer);
  }
}

// Messages of members.

void Coordinator::on_message_of_member(MemberId id, const Peer& peer, const Message& message) {
  std::visit(Overloaded{
                 [&](const Ready& m) { membership_.become_ready(id, m, now_); },
                 [&](const Stopped& m) { on_stopped(id, m); },
                 [&](const Formed& m) {
                   if (membership_.is_active_in(id, m.view)) {
                     membership_.formed(id);
                     change_.formed(now_);
                     settle_if_complete();
                   }
                 },
                 [&](const Synced& m) {
                   if (membership_.is_active_in(id, m.view)) {
                     membership_.synced(id, now_);
                     change_.synced(now_);
                     settle_if_complete();
                   }
                 },
                 [&](const CaughtUp& m) {
                   if (membership_.is_active_in(id, m.view) && membership_.caught_up(id, now_)) {
                     outbox_.note("caught_up", id,
                                  "after step " + std::to_string(value(m.committed)));
                   }
                 },
                 [&](const Progress& m) { on_progress(id, m); },
                 [&](const LeaveRequest& m) { on_leave_request(id, peer, m.reason); },
                 [&](const StoreSet& m) { on_store_set(id, m); },
                 [&](const StoreGet& m) { on_store_get(id, m); },
                 [&](const ViewWanted& m) { on_view_wanted(id, peer, m.view); },
                 [](const auto& /*other*/) {},
             },
             message);
}

void Coordinator::on_stopped(MemberId id, const Stopped& stopped) {
  if (!membership_.is_active_in(id, stopped.view)) {
    return;
  }
  ENSURE(phase_ == JobPhase::kRunning || phase_ == JobPhase::kStopping,
         "active members exist only while a view runs or ends");
  if (const auto inconsistency = inconsistency_in(stopped, id, membership_)) {
    evict({id, *inconsistency});
    membership_.forget_claims();
    return;
  }
  membership_.stopped(id, stopped);
  quorum_.committed(id, stopped.view, stopped.committed, membership_);
  const bool is_first = phase_ == JobPhase::kRunning;
  if (stopped.finished) {
    if (is_first) {
      begin_change(false, ChangeCause::kFinish);
    }
  } else if (stopped.dispute != Dispute::kNone) {
    if (is_first) {
      begin_change(false, ChangeCause::kGroupFailed);
    }
    change_.await_disputes(now_, stopped.dispute);
  } else if (is_first || (stopped.failed && !change_.is_immediate())) {
    begin_change(true, ChangeCause::kGroupFailed);
  }
  if (is_first && stopped.failed) {
    change_.broke_first(id, stopped.detail);
  }
  change_.await_others(now_);
}

void Coordinator::on_progress(MemberId id, const Progress& progress) {
  if (!membership_.is_active_in(id, progress.view)) {
    return;
  }
  membership_.progressed(id, progress, now_);
  quorum_.committed(id, progress.view, progress.committed, membership_);
  for (const Join& join : membership_.take_joins(now_)) {
    outbox_.add(coordinator_effect::JoinDone{join});
  }
  change_.committed(now_);
  settle_if_complete();
}

void Coordinator::settle_if_complete() {
  if (!options_.steps_need_all_members && membership_.all_have_started()) {
    quorum_.view_is_active();  // members do not report which steps the servers have committed
  }
  if (const auto done = change_.take_settled(membership_.all_have_started())) {
    if (done->cause == ChangeCause::kRebalance) {
      speeds_.change_took(done->synced - done->stopped);
    }
    outbox_.add(coordinator_effect::RecoveryDone{*done});
  }
}

void Coordinator::on_leave_request(MemberId id, const Peer& peer, const std::string& reason) {
  if (peer.is_leaving()) {
    return;
  }
  membership_.wants_to_leave(id, reason);
  if (peer.phase() != Peer::Phase::kLoading && !leaves_somebody(membership_.peers(), id)) {
    outbox_.note("leave_deferred", id, "it would leave no member: " + reason);
  }
}

void Coordinator::on_store_set(MemberId id, const StoreSet& set) {
  if (!membership_.takes_part_in(id, set.view)) {
    return;
  }
  bool accepted = false;
  const std::vector<MemberId> waiting = store_.set(set.key, set.value, accepted);
  if (!accepted && store_.is_first_refusal()) {
    outbox_.note("store_full", id, set.key);
  }
  for (const MemberId member : waiting) {
    if (membership_.takes_part_in(member, set.view)) {
      outbox_.send(member, StoreValue{set.view, set.key, set.value});
    }
  }
}

void Coordinator::on_store_get(MemberId id, const StoreGet& get) {
  if (!membership_.takes_part_in(id, get.view)) {
    return;
  }
  if (const Bytes* found = store_.get(id, get.key)) {
    outbox_.send(id, StoreValue{get.view, get.key, *found});
  } else if (store_.waiting_bytes(id) > kStoreWaitingBytesMax) {
    evict({id, "waits for too many keys of the view's store"});
  }
}

void Coordinator::on_view_wanted(MemberId id, const Peer& peer, ViewId view) {
  if (membership_.is_active_in(id, view) && !peer.formed) {
    outbox_.send(id, NewView{*membership_.view()});
    if (phase_ == JobPhase::kStopping) {  // it ignored the Stop of a view that it did not have yet
      send_stop({id}, !change_.is_immediate());
    }
  }
}

/// The member is dead or will obey no coordinator any more, which counts as its consent. Only the
/// coordinator that it obeyed last may count it, or two would. Incarnation numbers do not tell them
/// apart: two coordinators that know the same earlier one both take the next number.
void Coordinator::on_gone(MemberId id, Incarnation accepted, std::uint64_t author) {
  if (term_.is_ours(accepted, author)) {
    quorum_.is_gone(id, membership_);
  }
}

}  // namespace mayfly::elastic
