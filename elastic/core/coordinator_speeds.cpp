#include <fmt/format.h>

#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"

// Speeds that change while a view runs: microbatches are shared out anew at a boundary, and a
// member that is far too slow may be asked to leave. Both are planned changes; nothing is computed
// twice.

namespace mayfly::elastic {
namespace {

constexpr int kJudgementsPerSample = 5;  // nothing changes more often

std::string describe(const Rebalance& change, const std::vector<Load>& loads) {
  std::string text =
      fmt::format("{:.1f} ms of the slowest become {:.1f}", change.before_ms, change.after_ms);
  text += "; microbatches";
  for (const Load& load : loads) {
    text += ' ' + std::to_string(load.count);
  }
  text += " become";
  for (const std::uint32_t count : change.counts) {
    text += ' ' + std::to_string(count);
  }
  return text;
}

}  // namespace

void Coordinator::judge_speeds() {
  if (!is_undisturbed() || stop_asked_ || pause_asked_ || now_ < next_judgement_) {
    return;
  }
  next_judgement_ = now_ + options_.speed_sample / kJudgementsPerSample;
  std::vector<Load> loads;
  std::vector<Runner> runners;
  for (const ViewMember& member : membership_.view()->members) {
    const Peer* found = membership_.find(member.id);
    if (member.is_observer() || found == nullptr) {
      continue;
    }
    const Peer& peer = *found;
    loads.push_back({peer.speed.settled_ms(), member.count});
    if (!peer.leaving) {
      runners.push_back({member.id, peer.host, peer.speed.settled_ms()});
    }
  }
  if (drain_straggler(runners)) {
    return;  // the change that follows shares out anew
  }
  if (const std::optional<Rebalance> change = rebalancer_.judge(now_, loads)) {
    outbox_.note("rebalance", std::nullopt, describe(*change, loads));
    begin_change(false, "rebalance", {});
  }
}

/// True if one was asked to leave just now.
bool Coordinator::drain_straggler(const std::vector<Runner>& runners) {
  const std::optional<MemberId> slow = stragglers_.judge(now_, runners);
  const std::size_t least = std::max<std::size_t>(options_.min_workers, 1);
  if (!slow || runners.size() + membership_.count(Peer::Phase::kReady) <= least ||
      !membership_.leaves_somebody(*slow)) {
    return false;
  }
  const Peer& peer = membership_.at(*slow);
  membership_.wants_to_leave(
      *slow, fmt::format("straggler: {:.1f} ms a microbatch", peer.speed.settled_ms()));
  outbox_.note("straggler", *slow, peer.leave_reason);
  stragglers_.drained({*slow, peer.host, peer.speed.settled_ms()});
  return true;
}

}  // namespace mayfly::elastic
