#include <utility>

#include "base/check.hpp"
#include "elastic/core/claims.hpp"
#include "elastic/core/coordinator.hpp"
#include "elastic/core/disputes.hpp"

// Who has to go, as the judges find: claims that cannot be true, groups that break, states that
// differ, members that stand still or are too slow.

namespace mayfly::elastic {

void Coordinator::judge_blame() {
  if (phase_ != Phase::kStopping) {
    return;
  }
  const std::optional<MemberId> first = change_.first_to_break();
  if (!first) {
    blame_.view_ended_otherwise();
    return;
  }
  std::vector<BreakReport> reports;
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kStopped) {
      reports.push_back({id, peer.stopped.failed, peer.stopped.finished, peer.stopped.culprit,
                         peer.stopped.unanswered});
    }
  }
  const auto culprit = blame_.group_broke(*first, reports);
  if (culprit && is_dispensable(*culprit)) {
    const std::optional<MemberId> blamed = membership_.at(*culprit).stopped.culprit;
    const bool is_first = *culprit == *first;
    if (is_first && !blamed) {
      evict(*culprit, "its group broke again and again, and no other member's");
      return;
    }
    evict(*culprit,
          is_first && blamed == *culprit
              ? "it is cut off: " + membership_.at(*culprit).stopped.detail
              : "other members could not exchange data with it",
          DismissReason::kUnreachable);
  }
}

void Coordinator::judge_claims() {
  if (phase_ == Phase::kStopping) {
    evict_all(claims_.false_steps(membership_), DismissReason::kCorrupted);
    evict_all(claims_.false_ends(membership_), DismissReason::kEvicted);
  }
}

void Coordinator::evict_all(const std::vector<Accusation>& liars, DismissReason told) {
  for (const Accusation& liar : liars) {
    evict(liar.member, liar.reason, told);
  }
  if (!liars.empty()) {
    membership_.forget_claims();
  }
}

bool Coordinator::judge_states() {
  if (phase_ != Phase::kStopping) {
    return false;
  }
  const DisputeVerdict verdict = judge_dispute(membership_, options_.state_part_names);
  if (verdict.deadlock) {
    end(Outcome::kFailed, *verdict.deadlock, false);
    return true;
  }
  for (const MemberId odd : verdict.odd) {
    expel(odd, verdict.reason);
  }
  if (!verdict.odd.empty()) {
    change_.found_corruption();
  }
  return false;
}

void Coordinator::judge_stalls() {
  if (phase_ != Phase::kRunning && phase_ != Phase::kStopping) {
    return;
  }
  const std::vector<MemberId> active = membership_.active();
  for (const Stall& stall : stalls_.judge(active)) {
    const std::string what = describe(stall, membership_.view(), options_.bucket_names);
    if (!stall.evict) {
      outbox_.note("stalled", stall.member, what);
    } else if (membership_.somebody_else_works(stall.member)) {
      evict(stall.member, "hangs: " + what);
    }
  }
  if (phase_ == Phase::kRunning && stalls_.group_is_stuck(active)) {
    const std::string why = "every member waits for an all-reduce; the group forms anew";
    outbox_.note("stalled", std::nullopt, why);
    begin_change(true, "group_failed", {});
    change_.explain(why);
  }
}

void Coordinator::judge_speeds() {
  if (!is_undisturbed() || stop_asked_ || pause_asked_) {
    return;
  }
  const SpeedJudge::Verdict verdict = speeds_.judge(now_, membership_);
  if (const auto& slow = verdict.straggler) {
    membership_.wants_to_leave(slow->member, slow->reason);
    outbox_.note("straggler", slow->member, slow->reason);
  } else if (verdict.rebalance) {
    outbox_.note("rebalance", std::nullopt, *verdict.rebalance);
    begin_change(false, "rebalance", {});
  }
}

}  // namespace mayfly::elastic
