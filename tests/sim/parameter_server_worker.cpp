#include "tests/sim/parameter_server_worker.hpp"

#include <algorithm>
#include <string>

namespace mayfly::sim {

using parameter_server::SyncPlan;

std::vector<MemberId> living(const PsWorkers& workers) {
  std::vector<MemberId> ids;
  for (const auto& [id, w] : workers) {
    if (w->alive && !w->over) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::uint64_t clock_gap(const PsWorkers& workers) {
  std::uint64_t least = UINT64_MAX;
  std::uint64_t most = 0;
  for (const auto& [id, w] : workers) {
    least = std::min(least, w->pushed);
    most = std::max(most, w->pushed);
  }
  return most - least;
}

PsOptions loosened(PsOptions options) {
  const auto is_bounded = [](const parameter_server::SyncPhase& phase) {
    return phase.policy.kind == parameter_server::SyncKind::kSsp;
  };
  const SyncPlan plan = plan_of(options);
  if (options.sabotage == PsSabotage::kStaleBound &&
      std::ranges::all_of(plan.phases(), is_bounded)) {
    options.phases = "ssp:" + std::to_string(plan.phases()[0].policy.staleness + 1);
  }
  return options;
}

bool is_lost(const PsOptions& options, const PsWorker& worker, std::uint32_t shard, bool goes_up,
             Instant now) {
  return std::any_of(options.cuts.begin(), options.cuts.end(), [&](const PsCut& cut) {
    const bool is_new = worker.joined >= Instant{} + cut.from;
    const bool is_cut = goes_up ? cut.up : cut.down;
    return cut.worker == worker.host && cut.shard == shard && worker.leader[shard] == 0 &&
           now >= Instant{} + cut.from && (is_new || is_cut);
  });
}

SyncPlan plan_for(const SyncPlan& plan, const PsWorker& worker) {
  SyncPlan known = plan;
  if (worker.flow.rewind()) {
    known.fall_back(*worker.flow.rewind());
  }
  return known;
}

double loss_of(const PsOptions& options, const SyncPlan& plan, std::uint64_t slice) {
  const bool streams = is_stream(plan.phase_of(slice).policy);
  const bool diverges = streams && slice >= options.diverges_from && slice < options.calm_from;
  return diverges ? 100 * kUsualLoss : kUsualLoss;
}

}  // namespace mayfly::sim
