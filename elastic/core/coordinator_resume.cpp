#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"
#include "elastic/core/resume_report.hpp"

// Before a coordinator is in charge: its own beginning, and the return of members that have
// outlived their connection to it or to another one. While it collects them nothing is decided and
// nobody is disturbed; if all members of the last view are back and still run it, nothing changes
// at all.

namespace mayfly::elastic {
Coordinator::Coordinator(CoordinatorOptions options, const LogContents& contents)
    : Coordinator(std::move(options)) {
  ENSURE(!options_.standby, "a standby has no log");
  if (contents.job == 0) {
    return;  // the one before died before it had begun
  }
  ENSURE(contents.microbatches == options_.microbatches, "the job is the same as before");
  job_ = contents.job;
  incarnation_ = contents.incarnation;
  fingerprint_ = contents.fingerprint;
  logged_fingerprint_ = contents.fingerprint;
  if (contents.view) {
    membership_.adopt(*contents.view);
  }
  pause_asked_ = contents.is_paused;
  ended_before_ = contents.ended;
}

void Coordinator::begin() {
  ENSURE(options_.identity != 0, "0 names no coordinator");
  if (options_.standby) {
    ENSURE(options_.quorum, "only a majority makes it safe to take over");
    collect();
    return;
  }
  if (job_ == 0) {
    job_ = options_.identity;
    outbox_.append(log_record::JobStarted{job_, options_.microbatches, options_.fingerprint});
    logged_fingerprint_ = options_.fingerprint;
  }
  begin_incarnation(next(incarnation_));
  if (membership_.view() || ended_before_) {
    collect();
  }
}

/// Durable: two terms with the same number would be the end of fencing.
void Coordinator::begin_incarnation(Incarnation incarnation) {
  ENSURE(incarnation > incarnation_, "incarnations only grow");
  incarnation_ = incarnation;
  last_id_ = MemberId{id_base(incarnation_)};
  gone_.clear();
  outbox_.append(log_record::IncarnationStarted{incarnation_}, true);
  if (value(incarnation_) > 1) {
    outbox_.note("incarnation", std::nullopt, std::to_string(value(incarnation_)));
  }
}

/// From now on we wait for members to say what they do; those that are here are asked again. A job
/// that has had no view yet is led by whoever started it, and needs nobody's consent.
void Coordinator::collect() {
  const bool waits_for_members = membership_.view() || options_.standby || ended_before_;
  phase_ = waits_for_members ? Phase::kResuming : Phase::kWaiting;
  collecting_since_ = now_;
  first_return_.reset();
  no_quorum_since_.reset();
  change_.forget_all();
  waiting_since_.reset();
  membership_.ask_all_again();
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase != Peer::Phase::kDismissed) {
      welcome_back(id);
    }
  }
}

void Coordinator::welcome_back(MemberId id) {
  outbox_.send(id, Welcome{id, incarnation_, options_.identity, job_, true, options_.quorum});
}

std::optional<coordinator_effect::Refuse> Coordinator::reason_to_turn_away(
    const coordinator_event::WorkerConnected& event) const {
  const Hello& hello = event.hello;
  if (auto reason = reason_to_refuse(hello)) {
    return coordinator_effect::Refuse{event.connection, std::move(*reason), Refusal::kFinal};
  }
  if (is_impossible(hello)) {
    return coordinator_effect::Refuse{event.connection, "no job has such a member",
                                      Refusal::kFinal};
  }
  if (job_ != 0 && hello.job != job_) {
    return coordinator_effect::Refuse{event.connection, "this coordinator leads another job",
                                      Refusal::kElsewhere};
  }
  if (hello.joins_again) {  // under its id, as a quorum may need its vote
    return std::nullopt;
  }
  // One that has entered no view yet can always wait for the next; and if it knows more than we do,
  // it is not for us to judge.
  const bool is_news = hello.view > (membership_.view() ? membership_.view()->id : ViewId{});
  const bool is_over = phase_ == Phase::kRunning || !membership_.is_in_view(hello.member);
  const bool is_late = phase_ != Phase::kResuming && hello.view != ViewId{} && !is_news && is_over;
  if (membership_.is_fenced(hello.member) || (is_late && hello.incarnation <= incarnation_)) {
    return coordinator_effect::Refuse{event.connection, "the job went on without this member",
                                      Refusal::kEvicted};
  }
  return std::nullopt;
}

void Coordinator::take_back(const coordinator_event::WorkerConnected& event) {
  const Hello& hello = event.hello;
  if (membership_.find(hello.member) !=
      nullptr) {  // what was under way on its old connection is lost
    lose(hello.member, "it has connected again", false);
  }
  if (auto refusal = reason_to_turn_away(event)) {
    outbox_.add(std::move(*refusal));
    return;
  }
  const bool is_of_another = hello.incarnation == incarnation_ && hello.author != options_.identity;
  const bool obeys_another = hello.incarnation > incarnation_ || is_of_another;
  if (ended_before_ && obeys_another) {  // the end was ours; the job has gone on without us
    outbox_.add(coordinator_effect::Refuse{event.connection, "what this coordinator led has ended",
                                           Refusal::kElsewhere});
    return;
  }
  job_ = hello.job;
  settle_fingerprint(hello.fingerprint);
  if (obeys_another) {
    begin_incarnation(next(hello.incarnation));  // it would not obey us in a lower one
    collect();
  }
  last_id_ = std::max(last_id_, hello.member);
  membership_.take_back(hello.member, hello);
  detector_.heard(hello.member, now_);
  outbox_.add(coordinator_effect::Accept{event.connection, hello.member});
  welcome_back(hello.member);
  outbox_.note(hello.joins_again ? "joins_again" : "returned", hello.member, hello.host);
}

/// Of a member that returns; before its Resume nothing means anything.
void Coordinator::hear(MemberId id, const Peer& peer, const Message& message) {
  if (const auto* resume = std::get_if<Resume>(&message)) {
    hear(id, peer, *resume);
    return;
  }
  if (const auto* report = std::get_if<Report>(&message)) {
    on(id, peer, *report);
    return;
  }
  if (!peer.resume) {
    return;
  }
  if (const auto* set = std::get_if<StoreSet>(&message)) {
    on(id, peer, *set);
  } else if (const auto* get = std::get_if<StoreGet>(&message)) {
    on(id, peer, *get);
  } else if (const auto committed = membership_.amend_report(id, message)) {
    note_active(id, peer.resume->view->id, *committed);
  }
}

void Coordinator::hear(MemberId id, const Peer& peer, const Resume& resume) {
  const bool is_asked = peer.phase == Peer::Phase::kReturning && resume.incarnation == incarnation_;
  if (!is_asked || !makes_sense(id, resume)) {
    return;
  }
  membership_.resumed(id, resume);
  const bool is_news =
      resume.view && (!membership_.view() || resume.view->id > membership_.view()->id);
  if (is_news) {
    membership_.adopt(*resume.view);
    store_.clear();
    is_view_active_ = false;
    if (phase_ != Phase::kResuming) {  // we lead a job that has gone on elsewhere
      collect();
      return;
    }
  }
  if (membership_.view() && resume.view && resume.view->id == membership_.view()->id) {
    is_view_active_ = is_view_active_ || resume.is_active;
  }
  membership_.heard_of(resume.committed);
  if (phase_ == Phase::kResuming) {
    first_return_ = first_return_.value_or(now_);
  } else {
    place_late(id, peer);
  }
}

/// Those who are done publish nothing, and the others may have been told so and be gone.
bool Coordinator::only_finished_returned() const {
  std::size_t finished = 0;
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.resume && has_part(*peer.resume)) {
      if (!peer.resume->last || !peer.resume->last->finished) {
        return false;
      }
      ++finished;
    }
  }
  return finished > 0;
}

void Coordinator::take_charge_if_due() {
  const bool is_late = first_return_ && now_ - *first_return_ >= options_.resume_timeout;
  // Who asked for the end does not wait for members that would try twice a second to come back.
  const Duration patience = stop_asked_ ? options_.resume_timeout : options_.abandon_timeout;
  const bool is_abandoned = !options_.quorum && !first_return_ && collecting_since_ &&
                            now_ - *collecting_since_ >= patience;
  const bool is_complete = membership_.view() && membership_.missing().empty();
  if (!is_complete && !is_late && !is_abandoned) {
    return;
  }
  const bool runs_on =
      is_complete && std::all_of(membership_.view()->members.begin(),
                                 membership_.view()->members.end(), [&](const auto& m) {
                                   const Resume& resume = *membership_.at(m.id).resume;
                                   return resume.phase == ResumePhase::kRunning &&
                                          resume.view->id == membership_.view()->id;
                                 });
  const bool is_finished = membership_.view() && only_finished_returned();
  const auto lack = reason_to_wait();
  if (!runs_on && !is_finished && options_.quorum && lack) {
    idle_since_ = idle_since_.value_or(now_);
    if (!no_quorum_since_) {
      no_quorum_since_ = first_return_;
      outbox_.note("no_quorum", std::nullopt, *lack);
    }
    return;
  }
  take_charge();
}

void Coordinator::take_charge() {
  outbox_.note("in_charge", std::nullopt, "incarnation " + std::to_string(value(incarnation_)));
  const std::vector<MemberId> absent =
      membership_.view() ? membership_.missing() : std::vector<MemberId>{};
  phase_ = membership_.view() ? Phase::kRunning : Phase::kWaiting;
  if (membership_.view()) {
    outbox_.add(coordinator_effect::ViewTakenOver{*membership_.view()});
  }
  no_quorum_since_.reset();
  idle_since_.reset();
  stalls_.restart();
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kReturning && peer.resume) {
      place(id);
    }
  }
  for (const MemberId id : absent) {
    outbox_.note("lost", id, "it did not come back");
  }
  if (membership_.view() &&
      membership_.count(Peer::Phase::kActive) < membership_.view()->members.size()) {
    begin_change(true, absent.empty() ? "group_failed" : "lost", absent);
  }
}

/// A returned member takes the place in our books that its report gives it.
void Coordinator::place(MemberId id) {
  if (!membership_.place(id, now_)) {
    fence(id);
  }
}

/// One that comes when we are in charge: it was lost, and its view is not replaced yet.
void Coordinator::place_late(MemberId id, const Peer& peer) {
  if (has_part(*peer.resume) && phase_ == Phase::kRunning) {
    fence(id);
    return;
  }
  place(id);
  if (peer.phase != Peer::Phase::kActive) {
    return;
  }
  if (phase_ == Phase::kStopping) {
    tell_to_stop(id, !change_.is_immediate());
  } else {
    phase_ = Phase::kRunning;
    begin_change(true, "lost", {});
  }
}

/// The job has gone on without it. It may join as a new member.
void Coordinator::fence(MemberId id) {
  outbox_.note("evicted", id, "the job went on without it");
  dismiss(id, DismissReason::kEvicted, false, "the job went on without this member", true);
}

}  // namespace mayfly::elastic
