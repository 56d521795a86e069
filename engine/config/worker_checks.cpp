#include "engine/config/setting_checks.hpp"

#include <algorithm>

#include "base/parse.hpp"
#include "base/text.hpp"
#include "cloud_hooks/notice/notice.hpp"
#include "elastic/core/view.hpp"
#include "elastic/net/sentinel.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/faults/injection_plan.hpp"

namespace mayfly::engine {
namespace {

Complaint check_coordinators(const JobConfig& c) {
  constexpr std::size_t kEndpointCharactersMax = 255;
  const std::vector<std::string> endpoints = coordinator_endpoints(c);
  for (const std::string& endpoint : endpoints) {
    if (!is_endpoint(endpoint) || endpoint.size() > kEndpointCharactersMax) {
      return "coordinator '" + endpoint + "' is not HOST:PORT";
    }
  }
  if (endpoints.size() > elastic::kEndpointsMax) {
    return "coordinator names " + std::to_string(endpoints.size()) + " addresses, at most " +
           std::to_string(elastic::kEndpointsMax) + " are possible";
  }
  return std::nullopt;
}

Complaint check_elasticity(const JobConfig& c) {
  if (c.workers < 1 || c.workers > elastic::kMembersMax) {
    return "workers " + std::to_string(c.workers) + " is not between 1 and " +
           std::to_string(elastic::kMembersMax);
  }
  if (c.min_workers < 1 || c.min_workers > elastic::kMembersMax) {
    return "min_workers " + std::to_string(c.min_workers) + " is not between 1 and " +
           std::to_string(elastic::kMembersMax);
  }
  constexpr double kDayMs = 86'400'000;
  if (!(c.silence_max_ms >= 150 && c.silence_max_ms <= kDayMs)) {
    return "silence_max_ms " + shortest_text(c.silence_max_ms) +
           " must be at least 150, as workers send heartbeats every 100 ms, and at most a day";
  }
  if (!(c.evict_stragglers == 0 || c.evict_stragglers > 1)) {
    return "evict_stragglers " + shortest_text(c.evict_stragglers) + " must be 0 or above 1";
  }
  if (!(c.observe_from_mib >= 0 && c.observe_from_mib <= 1 << 30)) {
    return "observe_from_mib " + shortest_text(c.observe_from_mib) + " is not between 0 and 2^30";
  }
  if (!(c.starved_max_ms >= 0 && c.starved_max_ms <= kDayMs)) {
    return "starved_max_ms " + shortest_text(c.starved_max_ms) + " is not between 0 and a day";
  }
  return {};
}

Complaint check_stores(const JobConfig& c) {
  constexpr std::uint64_t kStoreMax = std::uint64_t{1} << 39;
  if (c.store_peers && (c.store.empty() || uses_parameter_servers(c))) {
    return c.store.empty() ? "store_peers needs store, the memory for images of this host"
                           : "store_peers works with all-reduce, not with parameter servers";
  }
  if (!c.store.empty() && !bytes_in(c.store, 1, kStoreMax)) {
    return "store " + c.store + " is not a size from 1B to 512GiB, such as 8GiB";
  }
  if (!c.prepared_store.empty() && !bytes_in(c.prepared_store, 1, kStoreMax)) {
    return "prepared_store " + c.prepared_store + " is not a size from 1B to 512GiB, such as 1GiB";
  }
  return {};
}

/// The settings of a worker's own machine, and the addresses of coordinators.
Complaint check_process(const JobConfig& c) {
  if (c.loader_threads > 1024) {
    return "loader_threads " + std::to_string(c.loader_threads) + " is not between 0 and 1024";
  }
  if (c.threads > 1024) {
    return "threads " + std::to_string(c.threads) + " is not between 0 and 1024";
  }
  if (c.bind_host.empty()) {
    return "bind_host must not be empty";
  }
  if (!c.coordinator.empty() && !c.chaos.empty() && !c.launched) {
    return "chaos is scripted by the process that starts the workers; it cannot be used with "
           "coordinator";
  }
  if (const auto notice = cloud_hooks::parse_notice_setting(c.notice); !notice.ok()) {
    return notice.error().detail;
  }
  return check_coordinators(c);
}

Complaint check_injections(const JobConfig& c) {
  const Result<std::vector<InjectionRule>> rules = parse_injections(c.inject);
  if (!rules.ok()) {
    return rules.error().detail;
  }
  const bool delays = std::any_of(rules.value().begin(), rules.value().end(),
                                  [](const InjectionRule& rule) { return rule.delay.count() > 0; });
  return unless(
      !delays || uses_parameter_servers(c) || c.backend == "tcp",
      "inject delay works with backend tcp and with parameter servers, not with backend " +
          c.backend + "; use slow or stop");
}

}  // namespace

Complaint check_workers(const JobConfig& c) {
  return first_of(c, {check_elasticity, check_stores, check_process, check_injections});
}

Result<void> check_spares(const JobConfig& config) {
  if (config.spares == 0) {
    return {};
  }
  if (config.spares >= config.workers) {
    return Error{Errc::kInvalidInput, "spares " + std::to_string(config.spares) + " of " +
                                          std::to_string(config.workers) +
                                          " workers leaves none to start the job with"};
  }
  if (config.min_workers > config.workers - config.spares) {
    return Error{Errc::kInvalidInput, "min_workers " + std::to_string(config.min_workers) +
                                          " is more than the " +
                                          std::to_string(config.workers - config.spares) +
                                          " workers that are not spares"};
  }
  return {};
}

}  // namespace mayfly::engine
