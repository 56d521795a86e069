#include "tests/sim/parameter_server_checks.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

namespace mayfly::sim {
namespace {

using parameter_server::SyncKind;
using parameter_server::SyncPhase;
using parameter_server::SyncPlan;

bool has_faults(const PsOptions& o) {
  return o.kills + o.joins + o.breaks + o.holds + o.server_kills + o.zombies > 0 || !o.cuts.empty();
}

/// Where an undisturbed worker ends; computed once for all seeds.
const PsResult& undisturbed(const PsOptions& options) {
  static std::map<std::tuple<std::string, std::uint32_t, std::uint32_t, std::uint32_t>, PsResult>
      known;
  const auto [place, is_new] =
      known.try_emplace({options.phases, options.steps, options.slices_per_step, options.shards});
  if (is_new) {
    PsOptions alone;
    alone.phases = options.phases;
    alone.steps = options.steps;
    alone.slices_per_step = options.slices_per_step;
    alone.shards = options.shards;
    alone.workers = 1;
    place->second = run_parameter_server(alone);
  }
  return place->second;
}

std::string on_shard(std::size_t shard, const std::string& text) {
  return "shard " + std::to_string(shard) + ": " + text;
}

std::string shard_violation(const PsOptions& options, const PsResult& result, std::uint32_t s) {
  const SyncPlan plan = plan_after(options, result);
  std::vector<std::uint64_t> all(plan.last_slice() - plan.first_slice());
  std::iota(all.begin(), all.end(), plan.first_slice());
  std::vector<std::uint64_t> committed = result.shards[s].committed;
  std::sort(committed.begin(), committed.end());
  if (committed != all) {
    return on_shard(s, "not every slice exactly once");
  }
  if (result.versions[s] != result.final_version) {
    return on_shard(s, std::to_string(result.versions[s]) + " updates");
  }
  if (replay(plan_of(options), s, result.shards[s]) != result.shards[s].model) {
    return on_shard(s, "other numbers than the recorded order gives");
  }
  return {};
}

}  // namespace

std::string violation(const PsOptions& options, const PsResult& result) {
  if (result.torn) {
    return {};
  }
  if (!result.done) {
    return "the job did not end";
  }
  const SyncPlan plan = plan_of(options);
  for (std::uint32_t s = 0; s < options.shards; ++s) {
    if (std::string broken = shard_violation(options, result, s); !broken.empty()) {
      return broken;
    }
  }
  if (result.wrong_snapshots > 0) {
    return "a snapshot of something else than the slices before it";
  }
  const SyncPhase& first = plan.phases().front();
  const bool is_bounded = first.policy.kind == SyncKind::kSsp && plan.phases().size() == 1;
  if (is_bounded && !has_faults(options) && result.clock_gap_max > first.policy.staleness + 1) {
    return "a worker was " + std::to_string(result.clock_gap_max) + " slices ahead";
  }
  const bool is_bsp = std::all_of(plan.phases().begin(), plan.phases().end(),
                                  [](const auto& p) { return p.policy.kind == SyncKind::kBsp; });
  for (std::uint32_t s = 0; s < options.shards && is_bsp && result.mixed == 0; ++s) {
    if (result.shards[s].model != undisturbed(options).shards[s].model) {
      return on_shard(s, "other bits than one undisturbed worker's");
    }
  }
  return {};
}

std::uint64_t seeds_asked() {
  const char* asked = std::getenv("MAYFLY_SIM_SEEDS");
  return asked == nullptr ? 150 : std::strtoull(asked, nullptr, 10);
}

std::string named(const PsOptions& options) {
  return options.phases + ", " + std::to_string(options.shards) + " shards, seed " +
         std::to_string(options.seed);
}

}  // namespace mayfly::sim
