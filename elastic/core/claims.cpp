#include "elastic/core/claims.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

// If links break again and again at the end of a job, honest members have needed up to four views.
constexpr std::uint32_t kUnfinishedViewsMax = 8;

std::string step_text(Step step) {
  return "step " + std::to_string(value(step));
}

/// A member of the ended view that has not received the state yet counts as being at the view's
/// step.
Step claim_of(const Peer& peer, const View& view) {
  return std::max(peer.committed, view.committed);
}

/// A step needs all members of the view, so their committed steps differ by at most one. If they
/// differ by more, the pair of successive steps that most members report is right, the lower pair
/// if two have equally many: continuing from an earlier step costs time, never correctness. Returns
/// the lower step of the pair; nothing if no member reports a step.
std::optional<Step> credible_step(const Membership& membership) {
  std::map<Step, std::size_t> claims;
  for (const auto& [id, peer] : membership.peers()) {
    if (peer.is_claimant()) {
      ++claims[claim_of(peer, *membership.view())];
    }
  }
  std::optional<Step> lower;
  std::size_t most = 0;
  for (const auto& [step, count] : claims) {
    const auto above = claims.find(next(step));
    const std::size_t in_pair = count + (above == claims.end() ? 0 : above->second);
    if (in_pair > most) {
      most = in_pair;
      lower = step;
    }
  }
  return lower;
}

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
    // Until the first step of a view is agreed on, a member that copied its state only repeats the
    // hashes of the source.
    const bool nothing_committed = peer.stopped.committed == membership.view()->committed;
    const bool is_copy = dispute == Dispute::kState && peer.copied_state && nothing_committed;
    witnesses.push_back({id, peer.stopped.hashes, !is_copy, peer.stopped.contradicts_itself});
  }
  return witnesses;
}

using Hashes = std::vector<std::uint64_t>;

/// The hashes that most independent witnesses report; null if no two agree, or if several hashes
/// are reported equally often. One report is enough if those that differ contradict themselves.
const Hashes* most_common(const std::vector<Witness>& witnesses) {
  std::map<Hashes, std::size_t> votes;
  for (const Witness& witness : witnesses) {
    if (witness.is_independent && !witness.contradicts_itself) {
      ++votes[witness.hashes];
    }
  }
  const bool blames_somebody =
      std::ranges::any_of(witnesses, [](const Witness& w) { return w.contradicts_itself; });
  const Hashes* winner = nullptr;
  std::size_t most = votes.size() == 1 && blames_somebody ? 0 : 1;  // to be exceeded
  for (const auto& [hashes, count] : votes) {
    if (count > most) {
      winner = &hashes;
      most = count;
    } else if (count == most) {
      winner = nullptr;
    }
  }
  if (winner == nullptr) {
    return nullptr;
  }
  const auto place = std::ranges::find_if(witnesses, [&](const Witness& witness) {
    return witness.is_independent && !witness.contradicts_itself && witness.hashes == *winner;
  });
  return &place->hashes;
}

std::vector<std::uint32_t> differing_parts(const Hashes& one, const Hashes& other) {
  std::vector<std::uint32_t> parts;
  for (std::size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
    if (i >= one.size() || i >= other.size() || one[i] != other[i]) {
      parts.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return parts;
}

}  // namespace

std::optional<std::string> inconsistency_in(const Stopped& stopped, MemberId id,
                                            const Membership& membership) {
  const Peer& peer = membership.at(id);
  const View& view = *membership.view();
  if (peer.observes != ViewId{}) {
    return std::nullopt;  // an observer holds no state of its own yet, and no sums
  }
  if (stopped.committed < peer.committed) {
    return "says that it has committed " + step_text(stopped.committed) + ", and said " +
           step_text(peer.committed) + " before";
  }
  if (stopped.committed < view.committed) {
    return std::nullopt;  // the member does not have the view's state yet, so its sums do not count
  }
  const ViewMember* self = member_of(view, id);
  ENSURE(self != nullptr, "only members of the view stop in it");
  MicrobatchSet strange = stopped.held.minus(due_after(view, *self, stopped.committed));
  if (stopped.committed == view.committed) {
    strange = strange.minus(peer.stopped.held);  // sums from before this view
  }
  if (!strange.empty()) {
    return "says that it holds microbatch " + std::to_string(strange.runs().front().first) +
           ", which is not among its own";
  }
  return std::nullopt;
}

std::vector<Accusation> ClaimJudge::false_steps(const Membership& membership) const {
  if (!steps_need_all_members_) {
    return {};
  }
  const std::optional<Step> lower = credible_step(membership);
  if (!lower) {
    return {};
  }
  const Step upper = next(*lower);
  const Step highest_known = std::max({upper, membership.committed(), membership.undone()});
  std::vector<Accusation> accused;
  for (const auto& [id, peer] : membership.peers()) {
    const Step claim = claim_of(peer, *membership.view());
    const bool is_outside = peer.is_claimant() && (claim < *lower || claim > upper);
    // A new worker may have the checkpoint of a member that was lost just after its commit, or a
    // checkpoint from before all members were lost.
    const bool is_ahead =
        peer.phase() == Peer::Phase::kReady && peer.committed > next(highest_known);
    // An observer may have caught up, and may even be the only member that committed.
    const bool saw_too_much = peer.phase() == Peer::Phase::kStopped && peer.observes != ViewId{} &&
                              peer.committed > upper;
    if (is_outside || is_ahead || saw_too_much) {
      accused.push_back({id,
                         "says that it has committed " + step_text(peer.committed) +
                             ", while the others are at " + step_text(*lower),
                         DismissReason::kCorrupted});
    }
  }
  return accused;
}

/// After the last step the members of a view evaluate and save the state together, and then report
/// that they have finished. If a member dies or the group breaks in between, some members
/// truthfully report that they have not finished while others have, and the next view repeats this
/// part. So a member is certainly wrong only if it reports the end of the job before its last step,
/// or if it never finishes although most of the others do, in one view after the other.
std::vector<Accusation> ClaimJudge::false_ends(const Membership& membership) {
  if (!steps_need_all_members_ || !last_step_) {
    return {};
  }
  const Step last = *last_step_;
  std::vector<Accusation> accused;
  std::vector<MemberId> unfinished;
  std::size_t finished = 0;
  for (const auto& [id, peer] : membership.peers()) {
    if (!peer.is_claimant()) {
      continue;
    }
    if (peer.stopped.finished && peer.committed < last) {
      accused.push_back({id, "says that " + step_text(peer.committed) +
                                 " is the last one; the job's last is " + step_text(last)});
    } else if (peer.stopped.finished) {
      ++finished;
    } else if (peer.committed >= last) {
      unfinished.push_back(id);
    }
  }
  if (finished > unfinished.size()) {
    for (const MemberId id : unfinished) {
      if (++unfinished_views_[id] == kUnfinishedViewsMax) {
        accused.push_back({id, "has not finished in " + std::to_string(kUnfinishedViewsMax) +
                                   " views in which most of the others have"});
      }
    }
  }
  return accused;
}

Verdict odd_one_out(const std::vector<Witness>& witnesses) {
  const Hashes* right = most_common(witnesses);
  if (right == nullptr) {
    return {};
  }
  Verdict verdict;
  verdict.decided = true;
  for (const Witness& witness : witnesses) {
    if (!witness.contradicts_itself && witness.hashes == *right) {
      continue;
    }
    if (verdict.odd.empty()) {
      verdict.parts = differing_parts(witness.hashes, *right);
    }
    verdict.odd.push_back(witness.member);
  }
  return verdict;
}

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
