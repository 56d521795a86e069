#include <algorithm>

#include "elastic/core/coordinator.hpp"

// Members that live but stand still: each is reported at once, and evicted when it has stood still
// for longer than any healthy member could.

namespace mayfly::elastic {

void Coordinator::judge_stalls() {
  if (phase_ != Phase::kRunning && phase_ != Phase::kStopping) {
    return;
  }
  std::vector<MemberId> active;
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kActive) {
      active.push_back(id);
    }
  }
  for (const Stall& stall : stalls_.judge(active)) {
    if (!stall.evict) {
      outbox_.note("stalled", stall.member, sentence_about(stall));
    } else if (membership_.somebody_else_works(stall.member)) {
      evict(stall.member, "hangs: " + sentence_about(stall));
    }
  }
  if (phase_ == Phase::kRunning && stalls_.group_is_stuck(active)) {
    const std::string why = "every member waits for an all-reduce; the group forms anew";
    outbox_.note("stalled", std::nullopt, why);
    begin_change(true, "group_failed", {});
    change_->detail = why;
  }
}

/// "rank 1 computes microbatch 5 of step 100, bucket 2 (layer1.0.conv1) and has not ..."
std::string Coordinator::sentence_about(const Stall& stall) const {
  std::string text;
  for (std::size_t rank = 0; membership_.view() && rank < membership_.view()->members.size();
       ++rank) {
    if (membership_.view()->members[rank].id == stall.member) {
      text = "rank " + std::to_string(rank) + ' ';
    }
  }
  text += describe(stall);
  if (stall.position.bucket < options_.bucket_names.size()) {
    text += "; bucket " + std::to_string(stall.position.bucket) + " is " +
            options_.bucket_names[stall.position.bucket];
  }
  return text;
}

}  // namespace mayfly::elastic
