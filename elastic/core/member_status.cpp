#include "elastic/core/member_status.hpp"

#include <optional>

#include "base/check.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {
namespace {

MemberPhase phase_of(const Peer& peer) {
  if (peer.is_leaving() || peer.phase() == Peer::Phase::kDismissed) {
    return MemberPhase::kLeaving;
  }
  if (peer.phase() == Peer::Phase::kReturning) {
    return peer.joins_again ? MemberPhase::kLoading : MemberPhase::kReturning;
  }
  if (peer.phase() == Peer::Phase::kLoading) {
    return MemberPhase::kLoading;
  }
  if (peer.is_candidate()) {
    return MemberPhase::kReady;
  }
  return peer.observes != ViewId{} ? MemberPhase::kObserving : MemberPhase::kActive;
}

std::uint32_t share_of(MemberId id, const std::optional<View>& view) {
  const ViewMember* member = view ? member_of(*view, id) : nullptr;
  return member == nullptr ? 0 : member->count;
}

}  // namespace

const char* name_of(MemberPhase phase) {
  switch (phase) {
    case MemberPhase::kLoading: return "loading";
    case MemberPhase::kReady: return "ready";
    case MemberPhase::kObserving: return "observing";
    case MemberPhase::kActive: return "active";
    case MemberPhase::kLeaving: return "leaving";
    case MemberPhase::kReturning: return "returning";
  }
  UNREACHABLE("every phase has a name");
}

std::vector<MemberStatus> status_of(const Membership& membership, const FailureDetector& detector,
                                    const StallWatch& stalls, bool is_running, Instant now) {
  std::vector<MemberStatus> all;
  for (const auto& [id, peer] : membership.peers()) {
    const std::optional<WorkerPosition> position = stalls.position(id);
    all.push_back({id, peer.host, peer.pid, phase_of(peer), peer.committed, peer.speed.best_ms(),
                   to_ms(detector.silence(id, now)), position ? name_of(position->activity) : "",
                   is_running ? share_of(id, membership.view()) : 0, peer.server, peer.cores,
                   peer.stages, peer.use, peer.phase() == Peer::Phase::kDismissed, peer.address});
  }
  return all;
}

}  // namespace mayfly::elastic
