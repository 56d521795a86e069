#include "tests/sim/parameter_server_replica.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/random.hpp"
#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {
using parameter_server::PushFate;
using parameter_server::ShardEvent;
using parameter_server::ShardEventKind;
using parameter_server::ShardOutcome;
using parameter_server::Update;

std::string to_text(PsSabotage sabotage) {
  switch (sabotage) {
    case PsSabotage::kNone: return "none";
    case PsSabotage::kLeaksBeforeFollower: return "leaks-before-follower";
    case PsSabotage::kFollowerMissesPush: return "follower-misses-push";
    case PsSabotage::kRepeatsApplied: return "repeats-applied";
    case PsSabotage::kWrongSlice: return "wrong-slice";
    case PsSabotage::kArrivalOrder: return "arrival-order";
    case PsSabotage::kVelocityLost: return "velocity-lost";
    case PsSabotage::kStaleBound: return "stale-bound";
    case PsSabotage::kConfirmsEarly: return "confirms-early";
    case PsSabotage::kForgetsTheLost: return "forgets-the-lost";
    case PsSabotage::kRestoresNothing: return "restores-nothing";
    case PsSabotage::kDeafToTheStopped: return "deaf-to-the-stopped";
    case PsSabotage::kJudgesSteps: return "judges-steps";
    case PsSabotage::kForgetsToBeQuiet: return "forgets-to-be-quiet";
    case PsSabotage::kComputesTwice: return "computes-twice";
    case PsSabotage::kNeglectsTheLate: return "neglects-the-late";
  }
  UNREACHABLE("every sabotage has a name");
}

std::uint64_t updated(std::uint64_t model, const std::vector<std::uint64_t>& slices,
                      const std::map<std::uint64_t, std::uint64_t>& gradients) {
  std::uint64_t sum = 0;
  for (const std::uint64_t slice : slices) {
    sum = mix64(sum ^ gradients.at(slice));  // the order counts
  }
  return mix64(model ^ sum);
}

ShardOutcome PsReplica::carry_out(const ShardEvent& event, std::uint64_t gradient) {
  if (event.kind == ShardEventKind::kPush) {
    log.pushes.push_back(event.push);
    log.gradients.push_back(gradient);
  }
  Result<ShardOutcome> outcome = core.take(event);
  if (!outcome.ok()) {
    log.refused = outcome.error().detail;
    return {};
  }
  if (const auto& rewind = outcome.value().restore) {
    log.rewind = *rewind;
    log.pushes_before_rewind = log.pushes.size() - (event.kind == ShardEventKind::kPush ? 1 : 0);
    log.model = sabotage_ == PsSabotage::kRestoresNothing ? log.model : models_.at(rewind->to);
  }
  const auto fate = outcome.value().fate;
  if (fate == PushFate::kApplied || fate == PushFate::kStaged) {
    kept_[event.push.slice] = gradient;
    arrivals_.push_back(event.push.slice);
  }
  if (fate == PushFate::kRepeat && sabotage_ == PsSabotage::kRepeatsApplied) {
    log.model = mix64(log.model ^ gradient);
    log.committed.push_back(event.push.slice);
  }
  if (outcome.value().update) {
    apply(*outcome.value().update);
  }
  return std::move(outcome).value();
}

void PsReplica::apply(const Update& update) {
  if (update.begins_phase) {
    models_[update.committed_before] = log.model;
  }
  std::vector<std::uint64_t> slices = update.slices;
  if (sabotage_ == PsSabotage::kArrivalOrder) {
    slices = arrivals_;
  }
  if (sabotage_ == PsSabotage::kVelocityLost && slices.front() != plan_.first_slice() &&
      core.plan().phase_of(slices.front()).first == slices.front()) {
    log.model = 0;
  }
  log.model = updated(log.model, slices, kept_);
  log.committed.insert(log.committed.end(), update.slices.begin(), update.slices.end());
  log.update_sizes.push_back(update.slices.size());
  for (const std::uint64_t slice : update.slices) {
    kept_.erase(slice);
    std::erase(arrivals_, slice);
  }
}

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
