#include "elastic/core/disputes.hpp"

#include <algorithm>
#include <cstdint>

#include "elastic/core/odd_one_out.hpp"

namespace mayfly::elastic {
namespace {

constexpr std::size_t kPartsNamed = 3;

std::string name_parts(const std::vector<std::uint32_t>& parts,
                       const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kPartsNamed); ++i) {
    const std::uint32_t part = parts[i];
    text += i == 0 ? "" : ", ";
    text += part < names.size() ? names[part] : "part " + std::to_string(part);
  }
  if (parts.size() > kPartsNamed) {
    text += " and " + std::to_string(parts.size() - kPartsNamed) + " more";
  }
  return text;
}

std::vector<Witness> witnesses_of(Dispute dispute, const Membership& membership) {
  std::vector<Witness> witnesses;
  for (const auto& [id, peer] : membership.peers()) {
    if (!peer.is_claimant() || peer.stopped.dispute != dispute) {
      continue;
    }
    // Until the first step of a view is agreed on, who copied its state only repeats the source.
    const bool nothing_committed = peer.stopped.committed == membership.view()->committed;
    const bool is_copy = dispute == Dispute::kState && peer.copied_state && nothing_committed;
    witnesses.push_back({id, peer.stopped.hashes, !is_copy, peer.stopped.contradicts_itself});
  }
  return witnesses;
}

}  // namespace

DisputeVerdict judge_dispute(const Membership& membership,
                             const std::vector<std::string>& part_names) {
  Dispute dispute = Dispute::kNone;
  bool all_spoke = true;
  for (const auto& [id, peer] : membership.peers()) {
    if (peer.is_claimant()) {
      dispute = std::max(dispute, peer.stopped.dispute);
      all_spoke = all_spoke && peer.stopped.dispute != Dispute::kNone;
    }
  }
  if (dispute == Dispute::kNone) {
    return {};
  }
  const std::vector<Witness> witnesses = witnesses_of(dispute, membership);
  const Verdict verdict = odd_one_out(witnesses);
  const std::string step = std::to_string(value(membership.committed()) + 1);
  const bool is_of_states = dispute == Dispute::kState;
  DisputeVerdict found;
  if (!verdict.decided) {
    if (all_spoke) {
      found.deadlock = (is_of_states ? "the members' states differ before step "
                                     : "members get different results for a microbatch of step ") +
                       step + ", and no two of " + std::to_string(witnesses.size()) +
                       " agree on what is right";
    }
    return found;
  }
  found.odd = verdict.odd;
  found.reason = is_of_states
                     ? "before step " + step + " its state differed from the others' in " +
                           name_parts(verdict.parts, part_names)
                     : "its result for a microbatch of step " + step + " differed from the others'";
  return found;
}

}  // namespace mayfly::elastic
