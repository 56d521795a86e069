#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"

// Before a coordinator is in charge: its own beginning, and the return of members that have
// outlived their connection to it or to another one. While it collects them nothing is decided and
// nobody is disturbed; if all members of the last view are back and still run it, nothing changes
// at all.

namespace mayfly::elastic {
namespace {

constexpr Incarnation kIncarnationMax{1'000'000'000};  // far from where ids would overflow

bool contains(const View& view, MemberId id) {
  return std::any_of(view.members.begin(), view.members.end(),
                     [id](const ViewMember& member) { return member.id == id; });
}

/// Ids that no coordinator of an incarnation it has accepted can have given it.
bool is_impossible(const Hello& hello) {
  const auto is_later = [&hello](std::uint64_t id) {
    return id != 0 && incarnation_of(ViewId{id}) > hello.incarnation;
  };
  return hello.incarnation > kIncarnationMax || is_later(value(hello.member)) ||
         is_later(value(hello.view));
}

/// It has a part in the view that it tells of; who joins again only had one.
bool has_part(const Resume& resume) {
  return resume.phase == ResumePhase::kRunning || resume.phase == ResumePhase::kStopped;
}

bool makes_sense(MemberId id, const Resume& resume) {
  const bool is_stopped = resume.phase == ResumePhase::kStopped;
  if ((has_part(resume) && !resume.view) || (is_stopped && !resume.last) ||
      (resume.phase == ResumePhase::kRunning && resume.last) || (resume.last && !resume.view)) {
    return false;
  }
  return !resume.view || (resume.view->id != ViewId{} && contains(*resume.view, id) &&
                          incarnation_of(resume.view->id) <= resume.incarnation &&
                          (!resume.last || resume.last->view == resume.view->id));
}

}  // namespace

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
  view_ = contents.view;
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
    append(log_record::JobStarted{job_, options_.microbatches, options_.fingerprint});
    logged_fingerprint_ = options_.fingerprint;
  }
  begin_incarnation(next(incarnation_));
  if (view_ || ended_before_) {
    collect();
  }
}

/// Durable: two terms with the same number would be the end of fencing.
void Coordinator::begin_incarnation(Incarnation incarnation) {
  ENSURE(incarnation > incarnation_, "incarnations only grow");
  incarnation_ = incarnation;
  last_id_ = MemberId{id_base(incarnation_)};
  gone_.clear();
  append(log_record::IncarnationStarted{incarnation_}, true);
  if (value(incarnation_) > 1) {
    note("incarnation", std::nullopt, std::to_string(value(incarnation_)));
  }
}

/// From now on we wait for members to say what they do; those that are here are asked again. A job
/// that has had no view yet is led by whoever started it, and needs nobody's consent.
void Coordinator::collect() {
  const bool waits_for_members = view_ || options_.standby || ended_before_;
  phase_ = waits_for_members ? Phase::kResuming : Phase::kWaiting;
  collecting_since_ = now_;
  first_return_.reset();
  no_quorum_since_.reset();
  change_.reset();
  settling_.reset();
  stop_deadline_.reset();
  first_to_break_.reset();
  waiting_since_.reset();
  for (auto& [id, peer] : peers_) {
    if (peer.phase != Peer::Phase::kDismissed) {
      peer.phase = Peer::Phase::kReturning;
      peer.resume.reset();
      welcome_back(id);
    }
  }
}

void Coordinator::welcome_back(MemberId id) {
  send(id, Welcome{id, incarnation_, options_.identity, job_, true, options_.quorum});
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
  const bool is_news = hello.view > (view_ ? view_->id : ViewId{});
  const bool is_over = phase_ == Phase::kRunning || !is_in_view(hello.member);
  const bool is_late = phase_ != Phase::kResuming && hello.view != ViewId{} && !is_news && is_over;
  if (fenced_.contains(hello.member) || (is_late && hello.incarnation <= incarnation_)) {
    return coordinator_effect::Refuse{event.connection, "the job went on without this member",
                                      Refusal::kEvicted};
  }
  return std::nullopt;
}

void Coordinator::take_back(const coordinator_event::WorkerConnected& event) {
  const Hello& hello = event.hello;
  if (peers_.contains(hello.member)) {  // what was under way on its old connection is lost
    lose(hello.member, "it has connected again", false);
  }
  if (auto refusal = reason_to_turn_away(event)) {
    effects_.emplace_back(std::move(*refusal));
    return;
  }
  const bool is_of_another = hello.incarnation == incarnation_ && hello.author != options_.identity;
  const bool obeys_another = hello.incarnation > incarnation_ || is_of_another;
  if (ended_before_ && obeys_another) {  // the end was ours; the job has gone on without us
    effects_.emplace_back(coordinator_effect::Refuse{
        event.connection, "what this coordinator led has ended", Refusal::kElsewhere});
    return;
  }
  job_ = hello.job;
  settle_fingerprint(hello.fingerprint);
  if (obeys_another) {
    begin_incarnation(next(hello.incarnation));  // it would not obey us in a lower one
    collect();
  }
  last_id_ = std::max(last_id_, hello.member);
  Peer& peer = peers_[hello.member];
  peer.phase = Peer::Phase::kReturning;
  peer.host = hello.host;
  peer.pid = hello.pid;
  peer.address = hello.address;
  peer.server = hello.server;
  detector_.heard(hello.member, now_);
  effects_.emplace_back(coordinator_effect::Accept{event.connection, hello.member});
  welcome_back(hello.member);
  note(hello.joins_again ? "joins_again" : "returned", hello.member, hello.host);
}

/// Of a member that returns; before its Resume nothing means anything.
void Coordinator::hear(MemberId id, Peer& peer, const Message& message) {
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
  Resume& known = *peer.resume;
  const auto is_of_view = [&known](ViewId view) {
    return has_part(known) && known.view->id == view;
  };
  const auto commit = [&](Step committed) {
    known.committed = std::max(known.committed, committed);
    committed_ = std::max(committed_, committed);
    known.is_active = known.is_active || (known.view && committed > known.view->committed);
    note_active(id, known.view ? known.view->id : ViewId{}, committed);
  };
  if (const auto* stopped = std::get_if<Stopped>(&message); stopped && is_of_view(stopped->view)) {
    known.phase = ResumePhase::kStopped;
    known.last = *stopped;
    commit(stopped->committed);
  } else if (const auto* step = std::get_if<Progress>(&message); step && is_of_view(step->view)) {
    known.microbatch_ms = step->microbatch_ms > 0 ? step->microbatch_ms : known.microbatch_ms;
    commit(step->committed);
  } else if (const auto* done = std::get_if<CaughtUp>(&message); done && is_of_view(done->view)) {
    known.has_caught_up = true;
  } else if (const auto* ready = std::get_if<Ready>(&message);
             ready && known.phase == ResumePhase::kLoading) {
    known.phase = ResumePhase::kReady;
    known.committed = ready->committed;
    known.state_bytes = ready->state_bytes;
  } else if (const auto* leave = std::get_if<LeaveRequest>(&message)) {
    known.is_leaving = true;
    known.leave_reason = leave->reason;
  } else if (const auto* set = std::get_if<StoreSet>(&message)) {
    on(id, peer, *set);
  } else if (const auto* get = std::get_if<StoreGet>(&message)) {
    on(id, peer, *get);
  }
}

void Coordinator::hear(MemberId id, Peer& peer, const Resume& resume) {
  const bool is_asked = peer.phase == Peer::Phase::kReturning && resume.incarnation == incarnation_;
  if (!is_asked || !makes_sense(id, resume)) {
    return;
  }
  peer.resume = resume;
  const bool is_news = resume.view && (!view_ || resume.view->id > view_->id);
  if (is_news) {
    view_ = *resume.view;
    store_.clear();
    is_view_active_ = false;
    if (phase_ != Phase::kResuming) {  // we lead a job that has gone on elsewhere
      collect();
      return;
    }
  }
  if (view_ && resume.view && resume.view->id == view_->id) {
    is_view_active_ = is_view_active_ || resume.is_active;
  }
  committed_ = std::max(committed_, resume.committed);
  if (phase_ == Phase::kResuming) {
    first_return_ = first_return_.value_or(now_);
  } else {
    place_late(id, peer);
  }
}

std::vector<MemberId> Coordinator::missing() const {
  std::vector<MemberId> absent;
  for (const ViewMember& member : view_->members) {
    const auto place = peers_.find(member.id);
    if (place == peers_.end() || !place->second.resume) {
      absent.push_back(member.id);
    }
  }
  return absent;
}

/// Those who are done publish nothing, and the others may have been told so and be gone.
bool Coordinator::only_finished_returned() const {
  std::size_t finished = 0;
  for (const auto& [id, peer] : peers_) {
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
  const bool is_complete = view_ && missing().empty();
  if (!is_complete && !is_late && !is_abandoned) {
    return;
  }
  const bool runs_on =
      is_complete && std::all_of(view_->members.begin(), view_->members.end(), [&](const auto& m) {
        const Resume& resume = *peers_.at(m.id).resume;
        return resume.phase == ResumePhase::kRunning && resume.view->id == view_->id;
      });
  const bool is_finished = view_ && only_finished_returned();
  const auto lack = reason_to_wait();
  if (!runs_on && !is_finished && options_.quorum && lack) {
    idle_since_ = idle_since_.value_or(now_);
    if (!no_quorum_since_) {
      no_quorum_since_ = first_return_;
      note("no_quorum", std::nullopt, *lack);
    }
    return;
  }
  take_charge();
}

void Coordinator::take_charge() {
  note("in_charge", std::nullopt, "incarnation " + std::to_string(value(incarnation_)));
  const std::vector<MemberId> absent = view_ ? missing() : std::vector<MemberId>{};
  phase_ = view_ ? Phase::kRunning : Phase::kWaiting;
  if (view_) {
    effects_.emplace_back(coordinator_effect::ViewTakenOver{*view_});
  }
  no_quorum_since_.reset();
  idle_since_.reset();
  has_first_commit_ = false;
  stalls_.restart();
  for (auto& [id, peer] : peers_) {
    if (peer.phase == Peer::Phase::kReturning && peer.resume) {
      place(id, peer);
    }
  }
  for (const MemberId id : absent) {
    note("lost", id, "it did not come back");
  }
  if (view_ && count(Peer::Phase::kActive) < view_->members.size()) {
    begin_change(true, absent.empty() ? "group_failed" : "lost", absent);
  }
}

/// A returned member takes the place in our books that its report gives it.
void Coordinator::place(MemberId id, Peer& peer) {
  const Resume told = *std::exchange(peer.resume, std::nullopt);
  peer.committed = told.committed;
  peer.state_bytes = told.state_bytes;
  peer.speed.add(now_, told.microbatch_ms, 1, options_.speed_sample);
  peer.leaving = peer.leaving || told.is_leaving;
  peer.leave_reason = told.is_leaving ? told.leave_reason : peer.leave_reason;
  peer.join.reset();
  if (!has_part(told)) {
    peer.stopped = {};  // for consent()
    peer.stopped.view = told.view ? told.view->id : ViewId{};
    peer.stopped.contributed = !told.last || told.last->contributed;
    place_beside(peer, told.phase == ResumePhase::kReady);
    return;
  }
  const bool is_last = told.view->id == view_->id;
  if (!is_in_view(id) && holds_newest_state(id, told)) {
    peer.stopped = *told.last;
    place_beside(peer, true);
    return;
  }
  if (!is_in_view(id) || (!is_last && told.phase == ResumePhase::kRunning)) {
    fence(id, peer);
    return;
  }
  for (const ViewMember& member : told.view->members) {
    if (member.id == id) {
      peer.observes = member.observes;
    }
  }
  peer.caught_up = told.has_caught_up ? std::optional(now_) : std::nullopt;
  peer.donors.clear();  // unknown; an observer that has not got the state begins again
  peer.formed = peer.synced = true;
  if (told.phase == ResumePhase::kRunning) {
    peer.phase = Peer::Phase::kActive;
    peer.stopped.held = told.held_before;
  } else {
    peer.phase = Peer::Phase::kStopped;
    peer.stopped = *told.last;
  }
}

/// It has no part in the last view, and may have one in the next.
void Coordinator::place_beside(Peer& peer, bool is_ready) {
  peer.phase = is_ready ? Peer::Phase::kReady : Peer::Phase::kLoading;
  peer.observes = ViewId{};
  peer.caught_up.reset();
  peer.donors.clear();
  Join& join = peer.join.emplace();
  join.connected = join.ready = now_;
}

/// The last view left it out, but of those who are here nobody has as much: members of that view
/// were lost before they told us, or before they entered it, and the job would go back. Two states
/// of the same step are equal if they are of the same view. Otherwise, with rounded sums, the step
/// may have been done twice with other bits: then the one of the later view counts, or the one that
/// somebody brings who has been in none. Parameter servers count steps that nobody here holds.
bool Coordinator::holds_newest_state(MemberId id, const Resume& told) const {
  const bool is_sound = told.phase == ResumePhase::kStopped &&
                        told.last->dispute == Dispute::kNone && !told.last->contradicts_itself;
  if (!is_sound || !options_.steps_need_everybody) {
    return false;
  }
  const auto has_more = [&](Step committed, ViewId view) {
    const bool is_other_state = view > told.view->id || view == ViewId{};
    return committed > told.committed || (committed == told.committed && is_other_state);
  };
  return std::none_of(peers_.begin(), peers_.end(), [&](const Peers::value_type& entry) {
    const auto& [other, peer] = entry;
    if (other == id) {
      return false;
    }
    if (peer.resume) {
      const ViewId view = peer.resume->view ? peer.resume->view->id : ViewId{};
      const bool works = peer.resume->phase == ResumePhase::kRunning && view == view_->id;
      return works || has_more(peer.resume->committed, view);  // how far it comes is not known yet
    }
    return peer.phase == Peer::Phase::kActive ||
           (peer.is_candidate() && has_more(peer.committed, peer.stopped.view));
  });
}

/// One that comes when we are in charge: it was lost, and its view is not replaced yet.
void Coordinator::place_late(MemberId id, Peer& peer) {
  if (has_part(*peer.resume) && phase_ == Phase::kRunning) {
    fence(id, peer);
    return;
  }
  place(id, peer);
  if (peer.phase != Peer::Phase::kActive) {
    return;
  }
  if (phase_ == Phase::kStopping) {
    tell_to_stop(id, peer, !stop_is_immediate_);
  } else {
    phase_ = Phase::kRunning;
    begin_change(true, "lost", {});
  }
}

/// The job has gone on without it. It may join as a new member.
void Coordinator::fence(MemberId id, Peer& peer) {
  note("evicted", id, "the job went on without it");
  dismiss(id, peer, DismissReason::kEvicted, false, "the job went on without this member", true);
}

}  // namespace mayfly::elastic
