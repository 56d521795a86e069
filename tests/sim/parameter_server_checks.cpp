#include "tests/sim/parameter_server_checks.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <vector>

namespace mayfly::sim {
namespace {

using parameter_server::SyncKind;
using parameter_server::SyncPhase;
using parameter_server::SyncPlan;

constexpr Duration kAtRest = milliseconds(30);  // for messages, a last record, detecting losses
constexpr std::uint64_t kNeglectMax = 24;       // leases

bool has_losses(const PsOptions& o) {
  return o.kills + o.breaks + o.server_kills + o.zombies > 0 || !o.cuts.empty();
}

bool has_orders(const PsOptions& o) {
  return o.pauses + o.pauses_at.size() + o.drains > 0 || o.stop_at.has_value();
}

bool has_faults(const PsOptions& o) {
  return o.joins + o.holds > 0 || has_losses(o) || has_orders(o);
}

/// Whether the coordinator may end a view without an orderly stop, because its time-out is short.
bool is_hurried(const PsOptions& o) {
  return o.stop_timeout < seconds(1);
}

/// The result of a job with one undisturbed worker; computed once for all seeds.
const PsResult& undisturbed(const PsOptions& options) {
  static std::mutex mutex;  // seeds are played on several threads
  const std::lock_guard lock(mutex);
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

/// The longest time of a step that was in progress when a process was told to stop: all slices one
/// after the other on the slowest worker, twice, because a worker may be lost meanwhile.
Duration longest_change(const PsOptions& options) {
  double slowest = 1;
  for (const auto& [number, factor] : options.slow) {
    slowest = std::max(slowest, factor);
  }
  const double slice_ms = slowest * (1 + options.jitter) + 1;
  return kAtRest + milliseconds(static_cast<std::int64_t>(2 * slice_ms * options.slices_per_step));
}

/// The number of views that losses, joins, leaves and pauses explain. A job that ends while it is
/// told to stop needs one more.
std::uint64_t views_explained(const PsOptions& options) {
  return 2 + options.joins + options.drains + options.kills + options.server_kills +
         options.zombies + 2 * (options.pauses + options.pauses_at.size()) +
         (options.stop_at ? 1 : 0) + (options.kills + options.drains > 0 ? 2 : 0);
}

void check_end(const PsOptions& options, const PsResult& result, std::vector<std::string>& broken) {
  if (!result.outcome) {
    broken.emplace_back("the job did not end");
    return;
  }
  const bool is_stopped = *result.outcome == elastic::Outcome::kStopped;
  if (*result.outcome != elastic::Outcome::kDone && !(is_stopped && options.stop_at)) {
    broken.emplace_back("the job ended as nobody asked it to");
  }
  // After losses, or if members were told to leave, the members' report that the job is done may
  // arrive after the stop.
  const bool is_orderly = !has_losses(options) && options.drains == 0 && !is_hurried(options);
  if (is_stopped && result.done && is_orderly) {
    broken.emplace_back("the job was stopped although nothing was left to do");
  }
  if (is_stopped && !result.done && !result.stopped_after && !has_losses(options) &&
      !is_hurried(options) && result.views > 0) {
    broken.emplace_back("the job was stopped without a checkpoint of whole steps");
  }
}

void check_membership(const PsOptions& options, const PsResult& result,
                      std::vector<std::string>& broken) {
  broken.insert(broken.end(), result.needless.begin(), result.needless.end());
  if (is_hurried(options)) {
    return;
  }
  if (result.change_max > longest_change(options)) {
    broken.push_back("a change of view took " + std::to_string(to_ms(result.change_max)) + " ms");
  }
  if (result.views > views_explained(options)) {
    broken.push_back(std::to_string(result.views) + " views, " +
                     std::to_string(views_explained(options)) + " can be explained");
  }
  const bool has_late = options.phases.find("backup") != std::string::npos;
  // The last answers of a leaving server may be lost.
  const bool moves_shards = options.colocated && options.drains > 0;
  if (!has_losses(options) && !has_late && !moves_shards &&
      result.reissued + result.repeats + result.mixed > 0) {
    broken.emplace_back("a slice was computed twice without a cause");
  }
}

/// Every shard must have every slice at most once, and the numbers that the recorded order gives.
void check_unfinished(const PsOptions& options, const PsResult& result,
                      std::vector<std::string>& broken) {
  for (std::uint32_t s = 0; s < options.shards; ++s) {
    std::vector<std::uint64_t> committed = result.shards[s].committed;
    std::sort(committed.begin(), committed.end());
    if (std::adjacent_find(committed.begin(), committed.end()) != committed.end()) {
      broken.push_back(on_shard(s, "a slice twice"));
    }
    if (replay(plan_of(options), s, result.shards[s]) != result.shards[s].model) {
      broken.push_back(on_shard(s, "other numbers than the recorded order gives"));
    }
  }
}

std::string finished_violation(const PsOptions& options, const PsResult& result) {
  const SyncPlan plan = plan_of(options);
  for (std::uint32_t s = 0; s < options.shards; ++s) {
    if (std::string broken = shard_violation(options, result, s); !broken.empty()) {
      return broken;
    }
  }
  const SyncPhase& first = plan.phases().front();
  const bool is_bounded = first.policy.kind == SyncKind::kSsp && plan.phases().size() == 1;
  if (is_bounded && !has_faults(options) && result.clock_gap_max > first.policy.staleness + 1) {
    return "a worker was " + std::to_string(result.clock_gap_max) + " slices ahead";
  }
  const bool is_bsp = std::all_of(plan.phases().begin(), plan.phases().end(),
                                  [](const auto& p) { return p.policy.kind == SyncKind::kBsp; });
  for (std::uint32_t s = 0; s < options.shards && is_bsp && result.mixed + result.at_once == 0;
       ++s) {
    if (result.shards[s].model != undisturbed(options).shards[s].model) {
      return on_shard(s, "other bits than one undisturbed worker's");
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> violations(const PsOptions& options, const PsResult& result) {
  if (result.torn) {
    return result.needless;
  }
  std::vector<std::string> broken;
  for (std::uint32_t s = 0; s < options.shards; ++s) {
    if (!result.shards[s].refused.empty()) {  // such a record cannot be replayed
      return {on_shard(s, "refused: " + result.shards[s].refused)};
    }
  }
  if (options.coordinated) {
    check_end(options, result, broken);
    check_membership(options, result, broken);
  }
  if (result.neglect_max > kNeglectMax) {
    broken.push_back("a worker was left without work while others got " +
                     std::to_string(result.neglect_max) + " leases");
  }
  if (result.wrong_snapshots > 0) {
    broken.emplace_back("a snapshot of something else than the slices before it");
  }
  if (options.coordinated && result.outcome == elastic::Outcome::kStopped && !result.done) {
    check_unfinished(options, result, broken);
  } else if (!result.done) {
    broken.emplace_back("the job did not end");
  } else if (std::string text = finished_violation(options, result); !text.empty()) {
    broken.push_back(std::move(text));
  }
  return broken;
}

std::string violation(const PsOptions& options, const PsResult& result) {
  const std::vector<std::string> broken = violations(options, result);
  return broken.empty() ? std::string() : broken.front();
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
