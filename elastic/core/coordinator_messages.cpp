#include <algorithm>

#include "base/check.hpp"
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
  if (const auto lie = inconsistency_in(id, peer, stopped)) {
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
    await_disputes(stopped.dispute);
  } else if (is_first || (stopped.failed && !stop_is_immediate_)) {
    begin_change(true, "group_failed", {});
  }
  if (is_first && stopped.failed) {
    first_to_break_ = id;
    change_->detail = "member " + std::to_string(value(id)) + ": " + stopped.detail;
  }
  if (!stop_deadline_) {
    stop_deadline_ = now_ + options_.stop_timeout;
  }
}

void Coordinator::on(MemberId id, const Peer& peer, const Formed& formed) {
  if (peer.phase != Peer::Phase::kActive || formed.view != membership_.view()->id) {
    return;
  }
  membership_.formed(id);
  if (settling_) {
    settling_->formed = now_;
    settle_if_complete();
  }
}

void Coordinator::on(MemberId id, const Peer& peer, const Synced& synced) {
  if (peer.phase != Peer::Phase::kActive || synced.view != membership_.view()->id) {
    return;
  }
  membership_.synced(id, now_);
  if (settling_) {
    settling_->synced = now_;
    settle_if_complete();
  }
}

void Coordinator::on(MemberId id, const Peer& peer, const Progress& progress) {
  if (peer.phase != Peer::Phase::kActive || progress.view != membership_.view()->id) {
    return;
  }
  membership_.progressed(id, progress, now_);
  note_active(id, progress.view, progress.committed);
  if (membership_.has_starters()) {
    report_joins();
  }
  if (settling_) {
    if (!has_first_commit_) {
      has_first_commit_ = true;
      settling_->step = now_;
    }
    settle_if_complete();
  }
}

void Coordinator::settle_if_complete() {
  ENSURE(settling_ && membership_.view(), "only a published view settles");
  if (membership_.everybody_has_started() && has_first_commit_) {
    if (settling_->cause == "rebalance") {
      rebalancer_.change_took(settling_->synced - settling_->stopped);
    }
    outbox_.add(coordinator_effect::RecoveryDone{*settling_});
    settling_.reset();
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

/// Also before everybody is back: members of a view that is being formed wait for each other. And
/// after a member has stopped: with parameter servers its work goes on, and may come to the job's
/// last records meanwhile.
bool Coordinator::uses_store(const Peer& peer, ViewId view) const {
  const bool has_returned = peer.phase == Peer::Phase::kReturning && peer.resume &&
                            peer.resume->view && peer.resume->view->id == view;
  const bool is_in_it =
      peer.phase == Peer::Phase::kActive || peer.phase == Peer::Phase::kStopped || has_returned;
  return membership_.view() && membership_.view()->id == view && is_in_it;
}

void Coordinator::on(MemberId id, const Peer& peer, const StoreSet& set) {
  if (!uses_store(peer, set.view)) {
    return;
  }
  bool accepted = false;
  const std::vector<MemberId> waiting = store_.set(set.key, set.value, accepted);
  if (!accepted && store_full_in_ != set.view) {
    store_full_in_ = set.view;  // once is enough: who fills it could fill the records, too
    outbox_.note("store_full", id, set.key);
  }
  for (const MemberId member : waiting) {
    const Peer* waiter = membership_.find(member);
    if (waiter != nullptr && uses_store(*waiter, set.view)) {
      outbox_.send(member, StoreValue{set.view, set.key, set.value});
    }
  }
}

void Coordinator::on(MemberId id, const Peer& peer, const StoreGet& get) {
  if (!uses_store(peer, get.view)) {
    return;
  }
  if (const Bytes* found = store_.get(id, get.key)) {
    outbox_.send(id, StoreValue{get.view, get.key, *found});
  } else if (store_.waiting_bytes(id) > kStoreWaitingBytesMax) {
    evict(id, "waits for too many keys of the view's store");
  }
}

void Coordinator::on(MemberId id, const Peer& peer, const ViewWanted& wanted) {
  if (peer.phase == Peer::Phase::kActive && wanted.view == membership_.view()->id && !peer.formed) {
    outbox_.send(id, NewView{*membership_.view()});
    if (phase_ == Phase::kStopping) {  // what it was told before it had the view was lost on it
      tell_to_stop(id, peer, !stop_is_immediate_);
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
