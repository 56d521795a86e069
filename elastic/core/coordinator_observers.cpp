#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"

// Observers: members of a view that have no work yet, because the state comes to them while the
// others go on (ADR 16). What is known about one: the view at whose beginning its copy of the state
// was taken, who sends it, and whether it has said that it caught up.

namespace mayfly::elastic {

/// By candidate: the state that it takes in the background; zero for those that are to work. They
/// have the view's state, or it is small enough to be sent while all wait.
std::vector<ViewId> Coordinator::observed_states(const Candidates& candidates,
                                                 const View& view) const {
  std::vector<ViewId> observed(candidates.size());
  // A small state, or a member that missed the end of the last step and has work to do at once: all
  // wait until it has the state, and so everybody else may have it, too.
  const bool all_wait = std::any_of(candidates.begin(), candidates.end(), [&](const auto& entry) {
    const Peer& peer = *entry.second;
    const bool worked = peer.phase == Peer::Phase::kStopped && peer.observes == ViewId{};
    return peer.committed < view.committed &&
           (worked || peer.state_bytes < options_.observe_from_bytes);
  });
  for (std::size_t i = 0; i < candidates.size() && !all_wait; ++i) {
    const Peer& peer = *candidates[i].second;
    if (peer.committed < view.committed) {
      observed[i] = goes_on_observing(peer, view) ? peer.observes : view.id;
    }
  }
  return observed;
}

/// It has every sum since its snapshot, and everybody who sends the snapshot is still there.
bool Coordinator::goes_on_observing(const Peer& peer, const View& view) const {
  return peer.observes != ViewId{} && peer.stopped.observed >= view.committed &&
         !peer.donors.empty() &&
         std::all_of(peer.donors.begin(), peer.donors.end(), [this](MemberId donor) {
           const auto place = peers_.find(donor);
           return place != peers_.end() && place->second.phase == Peer::Phase::kStopped;
         });
}

void Coordinator::on(MemberId id, Peer& peer, const CaughtUp& caught_up) {
  const bool is_news = peer.phase == Peer::Phase::kActive && caught_up.view == view_->id &&
                       peer.observes != ViewId{} && !peer.caught_up;
  if (is_news) {
    peer.caught_up = now_;
    note("caught_up", id, "after step " + std::to_string(value(caught_up.committed)));
  }
}

/// The observers that caught up, once nobody else is about to.
std::vector<MemberId> Coordinator::observers_to_start() const {
  std::vector<MemberId> ready;
  bool others_follow = false;
  std::optional<Instant> first;
  for (const auto& [id, peer] : peers_) {
    if (peer.phase != Peer::Phase::kActive || peer.observes == ViewId{} || peer.leaving) {
      continue;
    }
    if (peer.caught_up) {
      ready.push_back(id);
      first = std::min(first.value_or(*peer.caught_up), *peer.caught_up);
    } else {
      others_follow = true;
    }
  }
  if (others_follow && first && now_ - *first < options_.start_together) {
    return {};
  }
  return ready;
}

/// `member` is in the view that is being published.
void Coordinator::note_admission(const ViewMember& member, Peer& peer, const View& view) {
  if (peer.phase == Peer::Phase::kReady) {
    note("joined", member.id, peer.host);
    if (view_) {
      peer.join->admitted = now_;
      peer.join->admitted_after = view.committed;
    } else {
      peer.join.reset();  // there at the start
    }
  }
  if (member.observes == view.id) {
    peer.donors.clear();
    for (const Rank donor : donors_of(view)) {
      peer.donors.push_back(view.members[value(donor)].id);
    }
  }
  if (peer.join) {
    peer.join->snapshots += member.observes == view.id ? 1 : 0;
    if (peer.caught_up) {
      peer.join->caught_up = *peer.caught_up;
    }
    if (!member.is_observer()) {
      has_starters_ = true;
      peer.join->promoted = now_;
      peer.join->started_after = view.committed;
    }
  }
  peer.observes = member.observes;
  peer.caught_up.reset();
}

/// A step of the present view is committed: whoever works in it for the first time has joined.
void Coordinator::report_joins() {
  for (const ViewMember& member : view_->members) {
    const auto place = peers_.find(member.id);
    if (member.is_observer() || place == peers_.end() || !place->second.join) {
      continue;
    }
    Join& join = *place->second.join;
    join.member = member.id;
    join.step = now_;
    if (join.caught_up < join.admitted) {
      join.caught_up = join.admitted;
    }
    effects_.emplace_back(coordinator_effect::JoinDone{join});
    place->second.join.reset();
  }
  has_starters_ = false;
}

}  // namespace mayfly::elastic
