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
      rebalancer_(options_.rebalance),
      stragglers_(options_.stragglers) {
  ENSURE(options_.microbatches >= 1 && options_.microbatches <= kMicrobatchesMax,
         "a step has 1 to kMicrobatchesMax microbatches");
  ENSURE(options_.max_workers >= 1 && options_.max_workers <= kMembersMax,
         "a job has 1 to kMembersMax workers");
  ENSURE(options_.view_max >= options_.min_workers && options_.view_max >= options_.initial_workers,
         "a view may have as many members as are waited for");
}

std::vector<CoordinatorEffect> Coordinator::handle(Instant now, const CoordinatorEvent& event) {
  ENSURE(effects_.empty(), "effects are handed out with the event that caused them");
  now_ = now;
  if (!std::exchange(has_begun_, true)) {
    begin();
  }
  std::visit([this](const auto& e) { on(e); }, event);
  if (!is_quiet(event)) {
    advance();
  }
  return std::exchange(effects_, {});
}

void Coordinator::on(const coordinator_event::WorkerConnected& event) {
  if (event.hello.member != MemberId{}) {
    take_back(event);
    return;
  }
  if (ended_before_) {
    effects_.emplace_back(coordinator_effect::Refuse{event.connection, "the job has ended"});
    return;
  }
  if (phase_ == Phase::kResuming && options_.quorum) {
    const std::string why = view_ ? "" : ": " + reason_to_wait().value_or("");
    effects_.emplace_back(coordinator_effect::Refuse{
        event.connection, "this coordinator is not in charge" + why, Refusal::kElsewhere});
    return;
  }
  if (peers_.empty() && !view_) {
    fingerprint_ = options_.fingerprint;  // a first worker that is gone again binds nobody
  }
  if (auto reason = reason_to_refuse(event.hello)) {
    effects_.emplace_back(coordinator_effect::Refuse{event.connection, std::move(*reason)});
    return;
  }
  settle_fingerprint(event.hello.fingerprint);
  last_id_ = next(last_id_);
  const auto [place, is_new] = peers_.try_emplace(last_id_);
  ENSURE(is_new, "member ids are never reused");
  place->second.host = event.hello.host;
  place->second.pid = event.hello.pid;
  place->second.address = event.hello.address;
  place->second.server = event.hello.server;
  place->second.join.emplace().connected = now_;
  detector_.heard(last_id_, now_);
  effects_.emplace_back(coordinator_effect::Accept{event.connection, last_id_});
  send(last_id_, Welcome{last_id_, incarnation_, options_.identity, job_, false, options_.quorum,
                         view_.has_value()});
  note("connected", last_id_, event.hello.host);
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
  const auto place = peers_.find(event.member);
  if (place != peers_.end() && place->second.phase != Peer::Phase::kDismissed) {
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
  const auto place = peers_.find(event.member);
  if (place == peers_.end() || place->second.phase == Peer::Phase::kDismissed) {
    note("drain_refused", event.member, "there is no such member");
    return;
  }
  Peer& peer = place->second;
  const bool is_spare = peer.phase == Peer::Phase::kLoading;
  if (!is_spare && !stop_asked_ && !leaves_somebody(event.member)) {
    note("drain_refused", event.member, "it would leave no member");
    return;
  }
  peer.leaving = true;
  peer.leave_reason = event.reason;
}

void Coordinator::on(const coordinator_event::PauseAsked& event) {
  if (pause_asked_ != event.pause) {
    append(log_record::Paused{event.pause});
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
    if (!somebody_else_works(silent) && detector_.silence(silent, now_) < options_.stop_timeout) {
      continue;  // a suspicion may be wrong, and without the last one nothing goes on
    }
    lose(silent, detector_.reason(silent, now_), true);
  }
  for (const MemberId quiet : detector_.to_probe(now_)) {
    effects_.emplace_back(coordinator_effect::Probe{quiet});
  }
  judge_stalls();
  check_stop_deadline();
  check_waiting_time();
  judge_speeds();
  check_quorum_time();
}

const std::optional<View>& Coordinator::view() const {
  return view_;
}

Step Coordinator::committed() const {
  return committed_;
}

std::string Coordinator::phase() const {
  switch (phase_) {
    case Phase::kResuming: return options_.standby && !view_ ? "standby" : "resuming";
    case Phase::kWaiting: return "waiting";
    case Phase::kRunning: return "running";
    case Phase::kStopping: return "stopping";
    case Phase::kPaused: return "paused";
    case Phase::kEnded: return "ended";
  }
  UNREACHABLE("every phase has a name");
}

bool Coordinator::is_undisturbed() const {
  return phase_ == Phase::kRunning && !settling_;
}

std::vector<MemberStatus> Coordinator::members() const {
  std::vector<MemberStatus> all;
  for (const auto& [id, peer] : peers_) {
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
  if (view_ && phase_ == Phase::kRunning) {
    for (const ViewMember& member : view_->members) {
      if (member.id == id) {
        return member.count;
      }
    }
  }
  return 0;
}

Coordinator::Candidates Coordinator::candidates() const {
  Candidates ready;
  for (const auto& [id, peer] : peers_) {
    if (peer.is_candidate()) {
      ready.emplace_back(id, &peer);
    }
  }
  return ready;
}

bool Coordinator::is_in_view(MemberId id) const {
  return view_ && member_of(*view_, id) != nullptr;
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
    return phase_ == Phase::kStopping && is_anyone_active();
  }
  return std::holds_alternative<Heartbeat>(message) || std::holds_alternative<Progress>(message) ||
         std::holds_alternative<Formed>(message) || std::holds_alternative<Synced>(message) ||
         std::holds_alternative<Report>(message);
}

/// Looks where one was found last: while a view ends, members stop being active in any order.
bool Coordinator::is_anyone_active() {
  const auto hint = peers_.lower_bound(active_hint_);
  const auto is_active = [](const Peers::value_type& entry) {
    return entry.second.phase == Peer::Phase::kActive;
  };
  auto found = std::find_if(hint, peers_.end(), is_active);
  if (found == peers_.end()) {
    found = std::find_if(peers_.begin(), hint, is_active);
    if (found == hint) {
      return false;
    }
  }
  active_hint_ = found->first;
  return true;
}

std::size_t Coordinator::count(Peer::Phase phase) const {
  return static_cast<std::size_t>(std::count_if(
      peers_.begin(), peers_.end(),
      [phase](const Peers::value_type& entry) { return entry.second.phase == phase; }));
}

std::optional<MemberId> Coordinator::holder_of_newest_state() const {
  std::optional<MemberId> holder;
  Step newest{};
  for (const auto& [id, peer] : candidates()) {
    if (!holder || peer->committed > newest) {
      holder = id;
      newest = peer->committed;
    }
  }
  return holder;
}

void Coordinator::send(MemberId id, Message message) {
  effects_.emplace_back(coordinator_effect::Send{id, std::move(message)});
}

void Coordinator::append(LogRecord record, bool durable) {
  effects_.emplace_back(coordinator_effect::Append{std::move(record), durable});
}

void Coordinator::note(std::string kind, std::optional<MemberId> member, std::string detail) {
  effects_.emplace_back(coordinator_effect::Note{std::move(kind), member, std::move(detail)});
}

}  // namespace mayfly::elastic
