#include "elastic/core/peer_table.hpp"

#include <algorithm>
#include <numeric>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

/// Counts among PeerTable::leavers().
bool is_leaver(const Peer& peer) {
  return peer.is_leaving() && peer.phase() != Peer::Phase::kDismissed;
}

}  // namespace

bool leaves_somebody(const Peers& peers, MemberId leaver) {
  return std::ranges::any_of(peers, [leaver](const Peers::value_type& entry) {
    return entry.first != leaver && entry.second.works() && !entry.second.is_leaving();
  });
}

bool another_member_works(const Peers& peers, MemberId member) {
  return std::ranges::any_of(peers, [member](const Peers::value_type& entry) {
    return entry.first != member && entry.second.works();
  });
}

Peer* PeerTable::find(MemberId id) {
  const auto place = peers_.find(id);
  return place == peers_.end() ? nullptr : &place->second;
}

const Peer* PeerTable::find(MemberId id) const {
  const auto place = peers_.find(id);
  return place == peers_.end() ? nullptr : &place->second;
}

Peer& PeerTable::at(MemberId id) {
  Peer* const found = find(id);
  ENSURE(found != nullptr, "an event concerns a member that is not there");
  return *found;
}

const Peer& PeerTable::at(MemberId id) const {
  const Peer* const found = find(id);
  ENSURE(found != nullptr, "a query concerns a member that is not there");
  return *found;
}

bool PeerTable::is_anyone_active() {
  if (count(Peer::Phase::kActive) == 0) {
    return false;
  }
  const auto hint = peers_.lower_bound(active_hint_);
  const auto is_active = [](const Peers::value_type& entry) {
    return entry.second.phase() == Peer::Phase::kActive;
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

Peer& PeerTable::add(MemberId id, Peer::Phase phase) {
  const auto [place, is_new] = peers_.try_emplace(id);
  ENSURE(is_new, "member ids are never reused, and a member that returns has lost its place here");
  ++counts_[static_cast<std::size_t>(phase)];
  place->second.phase_ = phase;
  return place->second;
}

void PeerTable::enter_phase(Peer& peer, Peer::Phase phase) {
  leavers_ -= is_leaver(peer) ? 1 : 0;
  --counts_[static_cast<std::size_t>(peer.phase_)];
  peer.phase_ = phase;
  ++counts_[static_cast<std::size_t>(peer.phase_)];
  leavers_ += is_leaver(peer) ? 1 : 0;
}

void PeerTable::wants_to_leave(Peer& peer, const std::string& reason) {
  leavers_ -= is_leaver(peer) ? 1 : 0;
  peer.is_leaving_ = true;
  peer.leave_reason_ = reason;
  leavers_ += is_leaver(peer) ? 1 : 0;
}

void PeerTable::remove(MemberId id) {
  const Peer& gone = at(id);
  leavers_ -= is_leaver(gone) ? 1 : 0;
  --counts_[static_cast<std::size_t>(gone.phase_)];
  peers_.erase(id);
}

void PeerTable::check_invariants() const {
  ENSURE(std::accumulate(counts_.begin(), counts_.end(), std::size_t{0}) == peers_.size(),
         "every peer is in one phase");
  ENSURE(leavers_ + count(Peer::Phase::kDismissed) <= peers_.size(),
         "a peer that was dismissed does not want to leave any more");
}

void PeerTable::check_peers() const {
  check_invariants();
  std::array<std::size_t, Peer::kPhases> counts{};
  std::size_t leavers = 0;
  MemberId before{};
  for (const auto& [id, peer] : peers_) {
    ENSURE(before < id, "peers have different ids, of which none is 0, in ascending order");
    before = id;
    ++counts[static_cast<std::size_t>(peer.phase())];
    leavers += is_leaver(peer) ? 1 : 0;
  }
  ENSURE(counts == counts_ && leavers == leavers_, "incremental counts are correct");
}

}  // namespace mayfly::elastic
