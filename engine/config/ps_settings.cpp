#include "engine/config/ps_settings.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "collectives/parameter_server/core/straggler_watch.hpp"
#include "collectives/parameter_server/core/sync_plan.hpp"

namespace mayfly::engine {
namespace {

using parameter_server::JobLength;
using parameter_server::SyncPlan;

constexpr std::uint32_t kServersMax = 256;
// The addresses of the shards and of their followers must fit into the address of a member.
constexpr std::uint32_t kShardsPerServerMax = 4;

/// The plan as if the job had many steps, for checks that do not depend on their number.
Result<SyncPlan> plan_of_any_length(const JobConfig& config, std::uint32_t slices) {
  JobLength length;
  length.last_step = 1'000'000;
  length.slices_per_step = slices;
  length.samples_per_step = config.global_batch;
  length.microbatches = config.global_batch / config.microbatch;
  const Result<parameter_server::WarmUp> warm_up =
      parameter_server::parse_warm_up(config.asp_warm_up, length);
  if (!warm_up.ok()) {
    return Error{Errc::kInvalidInput, "asp_warm_up " + warm_up.error().detail};
  }
  length.warm_up = warm_up.value();
  const Result<SyncPlan> plan = parameter_server::parse_phases(phases_text(config), length);
  return plan.ok() ? plan
                   : Result<SyncPlan>(
                         Error{Errc::kInvalidInput,
                               fmt::format("{}: {}", config.phases.empty() ? "sync" : "phases",
                                           plan.error().detail)});
}

/// The number of slices in a round of a backup phase; 0 = there is no such phase.
std::uint32_t backup_round(const JobConfig& config) {
  const std::string& text = phases_text(config);
  const std::size_t at = text.find("backup:");
  if (at == std::string::npos) {
    return 0;
  }
  std::uint32_t needed = 0;
  std::from_chars(text.data() + at + 7, text.data() + text.size(), needed);
  return needed;
}

Error wrong(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

Result<void> check_stragglers(const JobConfig& config) {
  const auto policy = parameter_server::parse_straggler_policy(config.straggler);
  if (!policy.ok()) {
    return wrong("straggler " + policy.error().detail);
  }
  if (policy.value() != parameter_server::StragglerPolicy::kNone &&
      !uses_parameter_servers(config)) {
    return wrong(
        "straggler is for --sync and --phases; all-reduce has --rebalance and "
        "--evict-stragglers");
  }
  if (!(config.straggler_factor > 1 && config.straggler_factor <= 1000)) {
    return wrong(fmt::format("straggler_factor {} is not above 1 and at most 1000",
                             config.straggler_factor));
  }
  return config.straggler_windows >= 1 && config.straggler_windows <= 1000
             ? Result<void>()
             : Result<void>(wrong("straggler_windows is not between 1 and 1000"));
}

Result<void> check_colocated(const JobConfig& config) {
  if (config.ps_server) {
    return wrong("ps-server is not for ps colocated, where each worker runs a parameter server");
  }
  return {};
}

Result<void> check_divergence(const JobConfig& config) {
  if (config.on_divergence != "fail" && config.on_divergence != "bsp") {
    return wrong("on_divergence '" + config.on_divergence + "' is not fail or bsp");
  }
  const bool is_used = config.on_divergence != "fail" || !config.asp_warm_up.empty();
  if (is_used && !uses_parameter_servers(config)) {
    return wrong("on_divergence and asp_warm_up are for --sync and --phases");
  }
  if (!(config.divergence_factor > 1 && config.divergence_factor <= 1000)) {
    return wrong(fmt::format("divergence_factor {} is not above 1 and at most 1000",
                             config.divergence_factor));
  }
  return config.divergence_windows >= 1 && config.divergence_windows <= 1000
             ? Result<void>()
             : Result<void>(wrong("divergence_windows is not between 1 and 1000"));
}

Result<void> check_rate_rule(const JobConfig& config) {
  const Result<parameter_server::RateRule> rule = parameter_server::parse_rate_rule(config.lr_rule);
  return rule.ok() ? Result<void>() : Result<void>(wrong("lr_rule " + rule.error().detail));
}

/// Refuses settings that all-reduce would silently ignore.
Result<void> refuse_without_servers(const JobConfig& config) {
  if (carries_servers(config)) {
    return wrong("ps colocated needs --sync or --phases");
  }
  if (config.ps > 1) {
    return wrong(fmt::format("ps {} needs --sync or --phases: all-reduce has no parameter servers",
                             config.ps));
  }
  return config.lr_rule.starts_with("live-")
             ? Result<void>(
                   wrong("lr_rule " + config.lr_rule +
                         " needs --sync or --phases: with all-reduce each update is computed from "
                         "a whole global batch, whichever workers are alive"))
             : Result<void>();
}

constexpr std::uint64_t kGlobalStepsMax = std::uint64_t{1} << 48;

/// Whole numbers with commas between them, each above the one before.
std::optional<std::vector<std::uint64_t>> growing_numbers(std::string_view text) {
  std::vector<std::uint64_t> numbers;
  for (const std::string_view word : split(text, ',')) {
    const std::uint64_t before = numbers.empty() ? 0 : numbers.back();
    const auto number = number_in(word, before + 1, kGlobalStepsMax);
    if (!number) {
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

Error not_an_order(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

}  // namespace

bool uses_parameter_servers(const JobConfig& config) {
  return !config.sync.empty() || !config.phases.empty() || !config.switch_order.empty();
}

bool carries_servers(const JobConfig& config) {
  return config.ps == 0;
}

std::uint32_t dedicated_servers(const JobConfig& config) {
  return uses_parameter_servers(config) && !carries_servers(config) ? config.ps : 0;
}

std::uint32_t server_count(const JobConfig& config) {
  return carries_servers(config) ? config.workers : config.ps;
}

std::optional<std::uint32_t> carried_server(const JobConfig& config) {
  const bool carries = uses_parameter_servers(config) && carries_servers(config) &&
                       config.worker_number < server_count(config);
  return carries ? std::optional(config.worker_number) : std::nullopt;
}

const std::string& phases_text(const JobConfig& config) {
  return config.phases.empty() ? config.sync : config.phases;
}

std::uint32_t slices_per_step(const JobConfig& config) {
  if (config.slices > 0) {
    return config.slices;
  }
  const std::uint32_t backup = backup_round(config);
  const std::uint32_t microbatches = config.global_batch / std::max(1U, config.microbatch);
  if (config.straggler == "elastic" && backup == 0) {
    return std::max(1U, microbatches);  // so that fewer workers share a step as evenly as they can
  }
  return std::max(1U, std::min(backup > 0 ? backup : config.workers, microbatches));
}

Result<void> check_servers(const JobConfig& config) {
  if (!uses_parameter_servers(config)) {
    return refuse_without_servers(config);
  }
  const std::string servers = carries_servers(config) ? fmt::format("workers {}", config.workers)
                                                      : fmt::format("ps {}", config.ps);
  const std::uint32_t count = server_count(config);
  if (count < 1 || count > kServersMax) {
    return wrong(fmt::format("{} is not between 1 and {}{}", servers, kServersMax,
                             carries_servers(config) ? ", with a server each (ps colocated)" : ""));
  }
  if (config.ps_replicas == 1 && (count < 2 || config.shards > kShardsPerServerMax / 2)) {
    return wrong(fmt::format(
        "ps_replicas 1 needs at least two servers ({}) with at most {} shards each (shards {})",
        servers, kShardsPerServerMax / 2, config.shards));
  }
  if (!carries_servers(config) && config.ps_index >= config.ps) {
    return wrong(fmt::format("ps_index {} is not below ps {}", config.ps_index, config.ps));
  }
  if (backup_round(config) > 0 && count * config.shards > 1) {
    return wrong(
        "backup needs one shard (ps 1, shards 1): which slices are late must be decided "
        "in one place");
  }
  return {};
}

Result<void> check_backups(const JobConfig& config) {
  if (backup_round(config) == 0) {
    return {};
  }
  TRY_ASSIGN(const SyncPlan plan, plan_of_any_length(config, slices_per_step(config)));
  for (const parameter_server::SyncPhase& phase : plan.phases()) {
    const bool has_backups = phase.policy.kind == parameter_server::SyncKind::kBackup;
    if (has_backups && phase.policy.workers != config.workers) {
      return wrong(fmt::format("{} is for {} workers, and the job begins with {} (workers)",
                               to_text(phase.policy), phase.policy.workers, config.workers));
    }
  }
  return {};
}

Result<void> check_parameter_servers(const JobConfig& config) {
  for (const auto& check : {check_stragglers, check_divergence, check_rate_rule}) {
    TRY(check(config));
  }
  if (!uses_parameter_servers(config)) {
    return config.ps_server ? Result<void>(wrong("ps-server needs --sync or --phases"))
                            : Result<void>();
  }
  if (config.spares > 0) {
    return wrong("spares are for all-reduce; with parameter servers every worker has work");
  }
  if (carries_servers(config)) {
    TRY(check_colocated(config));
  } else
    TRY(check_servers(config));
  if (config.shards < 1 || config.shards > kShardsPerServerMax) {
    return wrong(fmt::format("shards {} is not between 1 and {} per server", config.shards,
                             kShardsPerServerMax));
  }
  if (config.ps_replicas > 1) {
    return wrong(fmt::format("ps_replicas {} is not 0 or 1", config.ps_replicas));
  }
  const std::uint32_t microbatches = config.global_batch / config.microbatch;
  const std::uint32_t slices = slices_per_step(config);
  if (slices > microbatches) {
    return wrong(
        fmt::format("slices {} is more than the {} microbatches of a step", slices, microbatches));
  }
  TRY_ASSIGN(const SyncPlan plan, plan_of_any_length(config, slices));
  if (config.wire != "auto" && config.wire != "fp32") {
    return wrong("parameter servers exchange fp32; wire " + config.wire + " is for all-reduce");
  }
  if (config.dtype == "fp16") {
    return wrong("parameter servers do not support a loss scale; use dtype bf16 or fp32 with them");
  }
  return {};
}

Result<void> spell_out_switch_order(JobConfig& config) {
  if (config.switch_order.empty() && config.train_steps.empty()) {
    return {};
  }
  if (!config.sync.empty() || !config.phases.empty() || config.steps > 0) {
    return not_an_order("switch_order replaces phases, sync and steps; give one or the other");
  }
  const std::string& order = config.switch_order;
  if (order.empty() || order.find_first_not_of("01") != std::string::npos) {
    return not_an_order(fmt::format("switch_order '{}' is not made of 1 (bsp) and 0 (asp)", order));
  }
  const auto ends = growing_numbers(config.train_steps);
  if (!ends || ends->size() != order.size()) {
    return not_an_order(
        fmt::format("train_steps '{}' is not {} growing whole numbers with commas, one "
                    "for each phase of switch_order {}",
                    config.train_steps, order.size(), order));
  }
  const std::uint64_t slices = slices_per_step(config);
  std::uint64_t before = 0;
  std::uint64_t steps = 0;
  std::string phases;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool is_bsp = order[i] == '1';
    const std::uint64_t length = (*ends)[i] - before;
    const std::uint64_t whole =
        is_bsp ? length : std::max<std::uint64_t>(1, (length + slices / 2) / slices);
    phases += fmt::format("{}{}:{}steps", i == 0 ? "" : ",", is_bsp ? "bsp" : "asp", whole);
    before = (*ends)[i];
    steps += whole;
  }
  config.phases = phases;
  config.steps = steps;
  config.switch_order.clear();
  config.train_steps.clear();
  return {};
}

}  // namespace mayfly::engine
