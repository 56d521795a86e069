#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"

// What follows when members of a view found that their states, or their results, differ: everybody
// has stopped before anything was committed on top, and said what it has. The odd one out is
// evicted; the sums of the others are kept.

namespace mayfly::elastic {
namespace {

constexpr std::size_t kPartsNamed = 3;

}  // namespace

std::string Coordinator::name_parts(const std::vector<std::uint32_t>& parts) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kPartsNamed); ++i) {
    const std::uint32_t part = parts[i];
    text += i == 0 ? "" : ", ";
    text += part < options_.state_part_names.size() ? options_.state_part_names[part]
                                                    : "part " + std::to_string(part);
  }
  if (parts.size() > kPartsNamed) {
    text += " and " + std::to_string(parts.size() - kPartsNamed) + " more";
  }
  return text;
}

/// A member found that states or results differ, and has stopped. The others find it in the same
/// reduction and must come to its end, for what they have is needed to tell who is right: told to
/// stop at once they would be cut off, and in the next view perhaps again.
void Coordinator::await_disputes(Dispute dispute) {
  if (phase_ == Phase::kRunning) {
    begin_change(false, "group_failed", {});
  } else if (stop_is_immediate_) {
    return;
  } else if (change_->cause != "group_failed") {
    change_->cause = "group_failed";
    change_->detected = change_->told = now_;
  }
  // To say what one gets for a microbatch takes as long as one that is not interrupted.
  const Instant deadline =
      now_ + (dispute == Dispute::kState ? options_.dispute_timeout : options_.stop_timeout);
  stop_deadline_ = std::min(stop_deadline_.value_or(deadline), deadline);
}

std::vector<Witness> Coordinator::witnesses_of(Dispute dispute) const {
  std::vector<Witness> witnesses;
  for (const auto& [id, peer] : membership_.peers()) {
    const bool has_state = peer.phase == Peer::Phase::kStopped && peer.observes == ViewId{};
    if (!has_state || peer.stopped.dispute != dispute) {
      continue;
    }
    // Until the first step of a view is agreed on, who copied its state only repeats the source.
    const bool nothing_committed = peer.stopped.committed == membership_.view()->committed;
    const bool is_copy = dispute == Dispute::kState && peer.copied_state && nothing_committed;
    witnesses.push_back({id, peer.stopped.hashes, !is_copy, peer.stopped.contradicts_itself});
  }
  return witnesses;
}

/// True if the job ended, because nobody can say who is right.
bool Coordinator::judge_dispute() {
  if (phase_ != Phase::kStopping || !change_) {
    return false;
  }
  Dispute dispute = Dispute::kNone;
  bool all_spoke = true;
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kStopped && peer.observes == ViewId{}) {
      dispute = std::max(dispute, peer.stopped.dispute);
      all_spoke = all_spoke && peer.stopped.dispute != Dispute::kNone;
    }
  }
  if (dispute == Dispute::kNone) {
    return false;
  }
  const std::vector<Witness> witnesses = witnesses_of(dispute);
  const Verdict verdict = odd_one_out(witnesses);
  const std::string step = std::to_string(value(membership_.committed()) + 1);
  if (!verdict.decided) {
    if (!all_spoke) {
      return false;  // the next view compares everything once more, with those who were cut off
    }
    end(Outcome::kFailed,
        (dispute == Dispute::kState ? "the members' states differ before step "
                                    : "members get different results for a microbatch of step ") +
            step + ", and no two of " + std::to_string(witnesses.size()) +
            " agree on what is right",
        false);
    return true;
  }
  const std::string what =
      dispute == Dispute::kState
          ? "before step " + step + " its state differed from the others' in " +
                name_parts(verdict.parts)
          : "its result for a microbatch of step " + step + " differed from the others'";
  for (const MemberId odd : verdict.odd) {
    expel(odd, what);
  }
  if (!verdict.odd.empty()) {
    change_->cause = "corrupted";
  }
  return false;
}

/// Evicts a member whose state must not be used again, not by itself either.
void Coordinator::expel(MemberId id, const std::string& what) {
  ENSURE(membership_.find(id) != nullptr, "only members can be expelled");
  outbox_.send(id, Dismiss{DismissReason::kCorrupted, false, what, true});
  membership_.fence(id);
  outbox_.add(coordinator_effect::Disconnect{id});
  outbox_.note("corrupted", id, what);
  remove(id, what);
}

}  // namespace mayfly::elastic
