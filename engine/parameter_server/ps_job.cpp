#include "engine/parameter_server/ps_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "nn/optimizer.hpp"

namespace mayfly::engine {
namespace {

using parameter_server::JobLength;
using parameter_server::SyncPhase;
using parameter_server::SyncPlan;

constexpr std::size_t kShardAlignment = 16;  // elements

// A mean of the loss is computed over kMeanSteps steps, or fewer in a job that would otherwise have
// fewer than kMeansPerJob means. A job falls back by at most 1 / kCutsPerJob of its steps, unless
// it is short.
constexpr std::uint64_t kMeanSteps = 4;
constexpr std::uint64_t kMeansPerJob = 100;
constexpr std::uint64_t kCutsPerJob = 20;

Error wrong(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

std::set<std::uint64_t> checkpoints_of(const Job& job, const SyncPlan& plan) {
  std::set<std::uint64_t> steps;
  for (const SyncPhase& phase : plan.phases()) {
    const std::uint64_t every =
        phase.settings.checkpoint_every.value_or(job.config.checkpoint_every);
    if (every == 0) {
      continue;
    }
    for (std::uint64_t step = (phase.first_step / every + 1) * every;
         step <= phase.last_step() && step < job.total_steps; step += every) {
      steps.insert(step);
    }
  }
  return steps;
}

std::set<std::uint64_t> evaluations_of(const Job& job, std::uint64_t first_step) {
  std::set<std::uint64_t> steps;
  const std::uint64_t every = job.evaluate_every_steps;
  for (std::uint64_t step = every; every > 0 && step < job.total_steps; step += every) {
    if (step > first_step) {
      steps.insert(step);
    }
  }
  return steps;
}

parameter_server::DivergenceOptions divergence_of(const Job& job, std::uint32_t slices) {
  const JobConfig& config = job.config;
  parameter_server::DivergenceOptions options;
  options.falls_back = config.on_divergence == "bsp";
  options.factor = config.divergence_factor;
  options.windows = config.divergence_windows;
  options.uniform_loss = std::log(static_cast<double>(job.facts.classes));
  const std::uint64_t steps =
      std::clamp<std::uint64_t>(job.total_steps / kMeansPerJob, 1, kMeanSteps);
  options.slices = static_cast<std::uint32_t>(steps * slices);
  return options;
}

/// The steps at which a phase without rounds pauses, so that the shards can keep a common state to
/// fall back to. They are twice as far apart as the detection of divergence takes.
std::set<std::uint64_t> resting_places(const Job& job, const SyncPlan& plan,
                                       const parameter_server::DivergenceOptions& options) {
  std::set<std::uint64_t> steps;
  const std::uint64_t verdict =
      std::uint64_t{options.windows} * options.slices / plan.slices_per_step();
  const std::uint64_t apart = std::max(2 * verdict, job.total_steps / kCutsPerJob);
  for (const SyncPhase& phase : plan.phases()) {
    if (options.falls_back && parameter_server::is_stream(phase.policy)) {
      for (std::uint64_t step = phase.first_step + apart; step < phase.last_step(); step += apart) {
        steps.insert(step);
      }
    }
  }
  return steps;
}

}  // namespace

std::vector<ShardRange> shard_ranges(const ReductionLayout& layout, std::uint32_t shards) {
  const std::size_t first = layout.statistics_offset();
  const std::size_t units =
      (layout.element_count() - first + kShardAlignment - 1) / kShardAlignment;
  std::vector<ShardRange> ranges;
  for (std::uint32_t i = 0; i < shards; ++i) {
    ranges.push_back(
        {first + units * i / shards * kShardAlignment,
         std::min(layout.element_count(), first + units * (i + 1) / shards * kShardAlignment)});
  }
  return ranges;
}

MicrobatchSlice PsJob::microbatches_of(const Job& job, std::uint64_t slice) const {
  const SyncPhase& phase = plan.phase_of(slice);
  const std::uint64_t slices = phase.slices_per_step;
  const std::uint64_t place = (slice - phase.first) % slices;
  const auto first = static_cast<std::uint32_t>(job.microbatches * place / slices);
  const auto last = static_cast<std::uint32_t>(job.microbatches * (place + 1) / slices);
  return {plan.steps_before(slice) + 1, first, last - first};
}

double PsJob::rate_of(const Job& job, const parameter_server::Update& update,
                      std::uint64_t microbatches) const {
  const double share =
      std::min(1.0, static_cast<double>(microbatches) / static_cast<double>(job.microbatches));
  return nn::learning_rate_at(job.schedule, std::min(update.step, job.total_steps)) * update.rate *
         parameter_server::rate_factor(update.settings.rule.value_or(rule), share, update.workers);
}

nn::SgdOptions sgd_of(const Job& job, const parameter_server::PhaseSettings& phase) {
  return {static_cast<float>(phase.momentum.value_or(job.config.momentum)),
          static_cast<float>(phase.weight_decay.value_or(job.config.weight_decay))};
}

Result<PsJob> make_ps_job(const Job& job, const ReductionLayout& layout, std::uint64_t first_step) {
  const JobConfig& config = job.config;
  JobLength length;
  length.first_step = first_step;
  length.last_step = job.total_steps;
  length.slices_per_step = slices_per_step(config);
  length.samples_per_step = config.global_batch;
  length.microbatches = job.microbatches;
  const Result<parameter_server::WarmUp> warm_up =
      parameter_server::parse_warm_up(config.asp_warm_up, length);
  if (!warm_up.ok()) {
    return wrong("asp_warm_up " + warm_up.error().detail);
  }
  length.warm_up = warm_up.value();
  const Result<SyncPlan> plan = parameter_server::parse_phases(phases_text(config), length);
  if (!plan.ok()) {
    return plan.error();
  }
  const std::uint32_t shards = server_count(config) * config.shards;
  PsJob ps{plan.value(),
           checkpoints_of(job, plan.value()),
           parameter_server::parse_rate_rule(config.lr_rule).value(),
           divergence_of(job, length.slices_per_step),
           shards,
           shard_ranges(layout, shards)};
  std::set<std::uint64_t> recorded = evaluations_of(job, first_step);
  recorded.insert(ps.checkpoints.begin(), ps.checkpoints.end());
  ps.plan = plan.value().cut_after(resting_places(job, plan.value(), ps.divergence), recorded);
  return ps;
}

}  // namespace mayfly::engine
