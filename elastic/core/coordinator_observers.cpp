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
           const Peer* found = membership_.find(donor);
           return found != nullptr && found->phase == Peer::Phase::kStopped;
         });
}

void Coordinator::on(MemberId id, const Peer& /*peer*/, const CaughtUp& caught_up) {
  if (membership_.is_active_in(id, caught_up.view) && membership_.caught_up(id, now_)) {
    outbox_.note("caught_up", id, "after step " + std::to_string(value(caught_up.committed)));
  }
}

/// The observers that caught up, once nobody else is about to.
std::vector<MemberId> Coordinator::observers_to_start() const {
  std::vector<MemberId> ready;
  bool others_follow = false;
  std::optional<Instant> first;
  for (const auto& [id, peer] : membership_.peers()) {
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

/// A step of the present view is committed: whoever works in it for the first time has joined.
void Coordinator::report_joins() {
  for (const Join& join : membership_.take_joins(now_)) {
    outbox_.add(coordinator_effect::JoinDone{join});
  }
}

}  // namespace mayfly::elastic
