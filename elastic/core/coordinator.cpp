#include "elastic/core/coordinator.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

// What happens from outside, and what the outside may ask. What members say is in
// coordinator_messages.cpp, who comes and goes in coordinator_admission.cpp, how one view ends in
// coordinator_change.cpp and how the next one is made in coordinator_publish.cpp.

namespace mayfly::elastic {

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      fingerprint_(options_.fingerprint),
      detector_(options_.silence_max, options_.starved_max),
      stalls_(options_.stalls),
      claims_(options_),
      speeds_(options_),
      membership_(options_),
      change_(options_) {
  ENSURE(options_.microbatches >= 1 && options_.microbatches <= kMicrobatchesMax,
         "a step has 1 to kMicrobatchesMax microbatches");
  ENSURE(options_.max_workers >= 1 && options_.max_workers <= kMembersMax,
         "a job has 1 to kMembersMax workers");
  ENSURE(options_.view_max >= options_.min_workers && options_.view_max >= options_.initial_workers,
         "a view may have as many members as are waited for");
}

std::vector<CoordinatorEffect> Coordinator::handle(Instant now, const CoordinatorEvent& event) {
  ENSURE(outbox_.empty(), "effects are handed out with the event that caused them");
  now_ = now;
  if (!std::exchange(has_begun_, true)) {
    begin();
  }
  std::visit([this](const auto& e) { on(e); }, event);
  if (!is_quiet(event)) {
    advance();
  }
  return outbox_.take();
}

void Coordinator::on(const coordinator_event::WorkerConnected& event) {
  if (event.hello.member != MemberId{}) {
    take_back(event);
    return;
  }
  if (ended_before_) {
    outbox_.add(coordinator_effect::Refuse{event.connection, "the job has ended"});
    return;
  }
  if (phase_ == Phase::kResuming && options_.quorum) {
    const std::string why = membership_.view() ? "" : ": " + reason_to_wait().value_or("");
    outbox_.add(coordinator_effect::Refuse{
        event.connection, "this coordinator is not in charge" + why, Refusal::kElsewhere});
    return;
  }
  if (membership_.peers().empty() && !membership_.view()) {
    fingerprint_ = options_.fingerprint;  // a first worker that is gone again binds nobody
  }
  if (auto reason = reason_to_refuse(event.hello)) {
    outbox_.add(coordinator_effect::Refuse{event.connection, std::move(*reason)});
    return;
  }
  settle_fingerprint(event.hello.fingerprint);
  last_id_ = next(last_id_);
  membership_.connect(last_id_, event.hello, now_);
  detector_.heard(last_id_, now_);
  outbox_.add(coordinator_effect::Accept{event.connection, last_id_});
  outbox_.send(last_id_, Welcome{last_id_, incarnation_, options_.identity, job_, false,
                                 options_.quorum, membership_.view().has_value()});
  outbox_.note("connected", last_id_, event.hello.host);
}

void Coordinator::on(const coordinator_event::ConnectionLost& event) {
  lose(event.member, event.detail, false);
}

void Coordinator::on(const coordinator_event::SentinelReport& event) {
  if (event.is_dead) {
    is_gone(event.member, event.incarnation, event.author);
  }
  lose(event.member, event.detail, true);
}

void Coordinator::on(const coordinator_event::SentinelBeat& event) {
  const Peer* peer = membership_.find(event.member);
  if (peer != nullptr && peer->phase != Peer::Phase::kDismissed) {
    if (event.worker_stopped) {
      detector_.stopped(event.member);
      return;
    }
    detector_.heard(event.member, now_);
    if (event.position) {
      stalls_.heard(event.member, *event.position, now_);
    }
  }
}

void Coordinator::on(const coordinator_event::HostAnswers& event) {
  detector_.host_answers(event.member, now_);
}

void Coordinator::on(const coordinator_event::DrainAsked& event) {
  const Peer* peer = membership_.find(event.member);
  if (peer == nullptr || peer->phase == Peer::Phase::kDismissed) {
    outbox_.note("drain_refused", event.member, "there is no such member");
    return;
  }
  const bool is_spare = peer->phase == Peer::Phase::kLoading;
  if (!is_spare && !stop_asked_ && !membership_.leaves_somebody(event.member)) {
    outbox_.note("drain_refused", event.member, "it would leave no member");
    return;
  }
  membership_.wants_to_leave(event.member, event.reason);
}

void Coordinator::on(const coordinator_event::PauseAsked& event) {
  if (pause_asked_ != event.pause) {
    outbox_.append(log_record::Paused{event.pause});
  }
  pause_asked_ = event.pause;
}

void Coordinator::on(const coordinator_event::StopAsked& event) {
  if (!stop_asked_) {
    stop_asked_ = event.reason;
  }
}

void Coordinator::on(const coordinator_event::FailAsked& event) {
  if (phase_ != Phase::kEnded && !ended_before_) {
    end(Outcome::kFailed, event.reason, false);
  }
}

void Coordinator::on(const coordinator_event::Tick& /*event*/) {
  const std::vector<MemberId> suspects = detector_.suspects(now_);
  excuse_own_pause(detector_.own_pause());
  for (const MemberId silent : suspects) {
    if (!membership_.somebody_else_works(silent) &&
        detector_.silence(silent, now_) < options_.stop_timeout) {
      continue;  // a suspicion may be wrong, and without the last one nothing goes on
    }
    lose(silent, detector_.reason(silent, now_), true);
  }
  for (const MemberId quiet : detector_.to_probe(now_)) {
    outbox_.add(coordinator_effect::Probe{quiet});
  }
  judge_stalls();
  check_stop_deadline();
  check_waiting_time();
  judge_speeds();
  check_quorum_time();
}

std::string Coordinator::phase() const {
  switch (phase_) {
    case Phase::kResuming: return options_.standby && !membership_.view() ? "standby" : "resuming";
    case Phase::kWaiting: return "waiting";
    case Phase::kRunning: return "running";
    case Phase::kStopping: return "stopping";
    case Phase::kPaused: return "paused";
    case Phase::kEnded: return "ended";
  }
  UNREACHABLE("every phase has a name");
}

bool Coordinator::is_undisturbed() const {
  return phase_ == Phase::kRunning && !change_.is_settling();
}

std::vector<MemberStatus> Coordinator::members() const {
  std::vector<MemberStatus> all;
  for (const auto& [id, peer] : membership_.peers()) {
    std::string phase = "active";
    if (peer.leaving || peer.phase == Peer::Phase::kDismissed) {
      phase = "leaving";
    } else if (peer.phase == Peer::Phase::kReturning) {
      phase = "returning";
    } else if (peer.phase == Peer::Phase::kLoading) {
      phase = "loading";
    } else if (peer.is_candidate()) {
      phase = "ready";
    } else if (peer.observes != ViewId{}) {
      phase = "observing";
    }
    const std::optional<WorkerPosition> position = stalls_.position(id);
    all.push_back({id, peer.host, peer.pid, std::move(phase), peer.committed, peer.speed.best_ms(),
                   to_ms(detector_.silence(id, now_)), position ? name_of(position->activity) : "",
                   share_of(id), peer.server});
  }
  return all;
}

std::uint32_t Coordinator::share_of(MemberId id) const {
  if (membership_.view() && phase_ == Phase::kRunning) {
    for (const ViewMember& member : membership_.view()->members) {
      if (member.id == id) {
        return member.count;
      }
    }
  }
  return 0;
}

/// Events that come by the thousand and decide nothing by themselves: what they may allow is done
/// at the next tick at the latest, so that a large job does not look at every member for each of
/// them.
bool Coordinator::is_quiet(const CoordinatorEvent& event) {
  if (std::holds_alternative<coordinator_event::SentinelBeat>(event)) {
    return true;
  }
  const auto* received = std::get_if<coordinator_event::Received>(&event);
  if (received == nullptr) {
    return false;
  }
  const Message& message = received->message;
  if (std::holds_alternative<Stopped>(message)) {
    return phase_ == Phase::kStopping && membership_.is_anyone_active();
  }
  return std::holds_alternative<Heartbeat>(message) || std::holds_alternative<Progress>(message) ||
         std::holds_alternative<Formed>(message) || std::holds_alternative<Synced>(message) ||
         std::holds_alternative<Report>(message);
}

}  // namespace mayfly::elastic
