#include "tests/sim/parameter_server_model.hpp"

#include "base/check.hpp"
#include "base/random.hpp"
#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

using parameter_server::PushFate;
using parameter_server::PushOutcome;
using parameter_server::SyncPlan;
using parameter_server::UpdateOrder;

std::uint64_t gradient_of(std::uint64_t slice, const std::vector<std::uint64_t>& parameters,
                          std::uint32_t shard) {
  std::uint64_t hash = mix64(slice + 1);
  for (const std::uint64_t part : parameters) {
    hash = mix64(hash ^ part);
  }
  return mix64(hash + shard);
}

SyncPlan plan_of(const PsOptions& options) {
  parameter_server::JobLength length;
  length.last_step = options.steps;
  length.slices_per_step = options.slices_per_step;
  length.samples_per_step = 16 * options.slices_per_step;
  Result<SyncPlan> plan = parameter_server::parse_phases(options.phases, length);
  ENSURE(plan.ok(), "a test's phases can be parsed");
  return plan.value().cut_after(options.rest_steps, options.snapshot_steps);
}

SyncPlan plan_after(const PsOptions& options, const PsResult& result) {
  SyncPlan plan = plan_of(options);
  if (result.rewind) {
    plan.fall_back(*result.rewind);
  }
  return plan;
}

std::uint64_t samples_of(const SyncPlan& plan, std::uint64_t slice) {
  const parameter_server::SyncPhase& phase = plan.phase_of(slice);
  return phase.first_step * plan.slices_per_step() + (slice - phase.first);
}

std::uint64_t replay(const SyncPlan& before, std::uint32_t /*shard*/, const PsShardLog& log) {
  SyncPlan plan = before;
  UpdateOrder order(plan);
  std::map<std::uint64_t, std::uint64_t> models;
  std::uint64_t model = 0;
  std::map<std::uint64_t, std::uint64_t> kept;
  for (std::size_t i = 0; i < log.pushes.size(); ++i) {
    if (log.rewind && i == log.pushes_before_rewind) {
      plan.fall_back(*log.rewind);
      order.restored();
      model = models.at(log.rewind->to);
    }
    const Result<PushOutcome> outcome = order.pushed(log.pushes[i]);
    ENSURE(outcome.ok(), "what was accepted once is accepted again");
    const PushFate fate = outcome.value().fate;
    if (fate == PushFate::kApplied || fate == PushFate::kStaged) {
      kept[log.pushes[i].slice] = log.gradients[i];
    }
    if (outcome.value().update) {
      if (outcome.value().update->begins_phase) {
        models[outcome.value().update->committed_before] = model;
      }
      model = updated(model, outcome.value().update->slices, kept);
    }
  }
  if (log.rewind && log.pushes_before_rewind == log.pushes.size()) {
    model = models.at(log.rewind->to);  // nothing was pushed since then
  }
  return model;
}

}  // namespace mayfly::sim
