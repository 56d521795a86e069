#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/claims.hpp"
#include "elastic/core/coordinator.hpp"

// What members say. A message of a dismissed member changes nothing any more, except that its
// reports (of the checkpoint it was asked for) still reach the engine.

namespace mayfly::elastic {

template <typename Other>
void Coordinator::on(MemberId /*id*/, const Peer& /*peer*/, const Other& /*other*/) {}

void Coordinator::on(const coordinator_event::Received& event) {
  if (const auto* left = std::get_if<Left>(&event.message)) {  // also of one that is evicted
    // It says so to whom it obeys.
    is_gone(event.member, left->incarnation, options_.identity);
    return;
  }
  const Peer* peer = membership_.find(event.member);
  if (peer == nullptr) {
    return;
  }
  const bool is_over = phase_ == Phase::kEnded || peer->phase == Peer::Phase::kDismissed;
  if (is_over && !std::holds_alternative<Report>(event.message)) {
    return;
  }
  if (!is_over) {
    detector_.heard(event.member, now_);
  }
  if (peer->phase == Peer::Phase::kReturning) {
    hear(event.member, *peer, event.message);
    return;
  }
  std::visit([&](const auto& message) { on(event.member, *peer, message); }, event.message);
}

void Coordinator::on(MemberId id, const Peer& /*peer*/, const Ready& ready) {
  membership_.become_ready(id, ready, now_);
}

void Coordinator::on(MemberId id, const Peer& peer, const Stopped& stopped) {
  if (peer.phase != Peer::Phase::kActive || stopped.view != membership_.view()->id) {
    return;
  }
  ENSURE(phase_ == Phase::kRunning || phase_ == Phase::kStopping,
         "active members exist only while a view runs or ends");
  if (const auto lie = inconsistency_in(stopped, id, membership_)) {
    evict(id, *lie);
    membership_.forget_claims();
    return;
  }
  membership_.stopped(id, stopped);
  note_active(id, stopped.view, stopped.committed);
  const bool is_first = phase_ == Phase::kRunning;
  if (stopped.finished) {
    if (is_first) {
      begin_change(false, "finish", {});
    }
  } else if (stopped.dispute != Dispute::kNone) {
    if (is_first) {
      begin_change(false, "group_failed", {});
    }
    change_.await_disputes(now_, stopped.dispute);
  } else if (is_first || (stopped.failed && !change_.is_immediate())) {
    begin_change(true, "group_failed", {});
  }
  if (is_first && stopped.failed) {
    change_.broke_first(id, stopped.detail);
  }
  change_.await_others(now_);
}

void Coordinator::on(MemberId id, const Peer& peer, const Formed& formed) {
  if (peer.phase != Peer::Phase::kActive || formed.view != membership_.view()->id) {
    return;
  }
  membership_.formed(id);
  change_.formed(now_);
  settle_if_complete();
}

void Coordinator::on(MemberId id, const Peer& peer, const Synced& synced) {
  if (peer.phase != Peer::Phase::kActive || synced.view != membership_.view()->id) {
    return;
  }
  membership_.synced(id, now_);
  change_.synced(now_);
  settle_if_complete();
}

void Coordinator::on(MemberId id, const Peer& peer, const Progress& progress) {
  if (peer.phase != Peer::Phase::kActive || progress.view != membership_.view()->id) {
    return;
  }
  membership_.progressed(id, progress, now_);
  note_active(id, progress.view, progress.committed);
  if (membership_.has_starters()) {
    for (const Join& join : membership_.take_joins(now_)) {
      outbox_.add(coordinator_effect::JoinDone{join});
    }
  }
  change_.committed(now_);
  settle_if_complete();
}

void Coordinator::settle_if_complete() {
  if (const auto done = change_.take_settled(membership_.everybody_has_started())) {
    if (done->cause == "rebalance") {
      speeds_.change_took(done->synced - done->stopped);
    }
    outbox_.add(coordinator_effect::RecoveryDone{*done});
  }
}

void Coordinator::on(MemberId id, const Peer& peer, const LeaveRequest& request) {
  if (peer.leaving) {
    return;
  }
  membership_.wants_to_leave(id, request.reason);
  if (peer.phase != Peer::Phase::kLoading && !membership_.leaves_somebody(id)) {
    outbox_.note("leave_deferred", id, "it would leave no member: " + request.reason);
  }
}

void Coordinator::on(MemberId id, const Peer& /*peer*/, const Report& report) {
  outbox_.add(coordinator_effect::ReportReceived{id, report.payload});
}

void Coordinator::on(MemberId id, const Peer& /*peer*/, const StoreSet& set) {
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

void Coordinator::on(MemberId id, const Peer& /*peer*/, const StoreGet& get) {
  if (!membership_.takes_part_in(id, get.view)) {
    return;
  }
  if (const Bytes* found = store_.get(id, get.key)) {
    outbox_.send(id, StoreValue{get.view, get.key, *found});
  } else if (store_.waiting_bytes(id) > kStoreWaitingBytesMax) {
    evict(id, "waits for too many keys of the view's store");
  }
}

void Coordinator::on(MemberId id, const Peer& /*peer*/, const CaughtUp& caught_up) {
  if (membership_.is_active_in(id, caught_up.view) && membership_.caught_up(id, now_)) {
    outbox_.note("caught_up", id, "after step " + std::to_string(value(caught_up.committed)));
  }
}

void Coordinator::on(MemberId id, const Peer& peer, const ViewWanted& wanted) {
  if (peer.phase == Peer::Phase::kActive && wanted.view == membership_.view()->id && !peer.formed) {
    outbox_.send(id, NewView{*membership_.view()});
    if (phase_ == Phase::kStopping) {  // what it was told before it had the view was lost on it
      tell_to_stop(id, !change_.is_immediate());
    }
  }
}

void Coordinator::on(MemberId id, const Peer& /*peer*/, const WorkerDied& died) {
  if (died.is_dead) {
    is_gone(id, died.incarnation, died.author);
  }
  lose(id, died.detail, true);
}

}  // namespace mayfly::elastic
