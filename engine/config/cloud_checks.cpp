#include "engine/config/setting_checks.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/parse.hpp"
#include "base/text.hpp"
#include "elastic/core/view.hpp"
#include "engine/config/cloud_offers.hpp"
#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {
namespace {

/// The purpose of a server is recognised only by its offer, so the two lists must not share an
/// offer.
Complaint check_evaluator_offers(const JobConfig& c) {
  const auto own = parse_offers(c.evaluator_offers, "evaluator_offers");
  if (!own.ok()) {
    return own.error().detail;
  }
  const auto of_workers = parse_offers(c.cloud_offers);
  for (const cloud_hooks::OfferTerms& terms : own.value()) {
    if (std::ranges::any_of(of_workers.value(), [&](const cloud_hooks::OfferTerms& other) {
          return other.offer == terms.offer;
        })) {
      return "evaluator_offers: " + to_string(terms.offer) +
             " is one of cloud_offers too; evaluators use those if evaluator_offers is empty";
    }
  }
  if (!own.value().empty() && of_workers.value().empty()) {
    return "evaluator_offers need cloud_offers for the workers";
  }
  return {};
}

/// The servers that may be requested, and limits on their cost.
Complaint check_requests(const JobConfig& c) {
  constexpr std::size_t kServerCharactersMax = 128;
  // A worker leaves two minutes before its server's end; a shorter lifetime pays for no step.
  constexpr double kLifetimeHoursLeast = 0.1;
  if (!is_utf8(c.cloud_program)) {  // the settings of a run are on record as a TOML file
    return std::string("the program's command is not valid UTF-8");
  }
  if (c.server.size() > kServerCharactersMax) {
    return "server is longer than " + std::to_string(kServerCharactersMax) + " characters";
  }
  for (const auto& [name, number] : {std::pair("cloud_budget", c.cloud_budget),
                                     std::pair("cloud_budget_per_hour", c.cloud_budget_per_hour)}) {
    if (!(number >= 0 && number <= 1e9)) {
      return std::string(name) + " " + shortest_text(number) + " is not between 0 and 1e9";
    }
  }
  if (!(c.cloud_start_timeout >= 1 && c.cloud_start_timeout <= 1e6)) {
    return "cloud_start_timeout " + shortest_text(c.cloud_start_timeout) +
           " is not between 1 and 1e6";
  }
  if (c.cloud_lifetime_hours > 0 && c.cloud_lifetime_hours < kLifetimeHoursLeast) {
    return "cloud_lifetime_hours " + shortest_text(c.cloud_lifetime_hours) +
           " is below 0.1; 0 means no limit";
  }
  const auto offers = worker_offers(c);
  if (!offers.ok()) {
    return offers.error().detail;
  }
  if (servers_use_cuda(c) && names_cloud_machines(c)) {
    const bool rounds = c.reduction != "exact" && c.audit_every == 0 && !uses_parameter_servers(c);
    if (const Result<void> gpus = check_gpus(offers.value(), !rounds); !gpus.ok()) {
      return gpus.error().detail;
    }
  }
  if (!c.hosts.empty() && !c.hostfile.empty()) {
    return std::string("hosts and hostfile have the same purpose; give only one of them");
  }
  if (c.evaluators > 0 && c.cloud_provider.empty() && c.hosts.empty() && c.hostfile.empty()) {
    return std::string(
        "evaluators are servers of --cloud-provider or --hosts; for a run whose workers are "
        "started otherwise, start `mayfly evaluator --run-dir DIR`");
  }
  return check_evaluator_offers(c);
}

/// A job with standbys that requests servers must list the addresses of all coordinators for them.
Complaint check_coordinators_of_servers(const JobConfig& c) {
  const std::vector<std::string_view> endpoints = split(c.cloud_coordinators, ',');
  const bool has_others = c.quorum || c.standby;
  if (has_others && endpoints.size() < 2) {
    return "a job with standbys that asks for servers needs cloud_coordinators: the HOST:PORT of "
           "every coordinator, for the workers on them";
  }
  if (has_others && c.cloud_job.empty()) {
    return "a job with standbys that asks for servers needs cloud_job, one name for all "
           "coordinators, by which they find each other's servers";
  }
  for (const std::string_view endpoint : endpoints) {
    if (!is_endpoint(std::string(endpoint))) {
      return "cloud_coordinators: '" + std::string(endpoint) + "' is not HOST:PORT";
    }
  }
  return {};
}

Complaint check_provider(const JobConfig& c) {
  if (c.cloud_provider.empty()) {
    return {};
  }
  if (c.cloud_max_workers != 0 && c.cloud_max_workers < c.workers) {
    return "cloud_max_workers " + std::to_string(c.cloud_max_workers) + " is below workers " +
           std::to_string(c.workers);
  }
  if (c.cloud_max_workers > elastic::kMembersMax) {
    return "cloud_max_workers is above " + std::to_string(elastic::kMembersMax);
  }
  if (c.cloud_provider == "ssh" && c.hosts.empty() && c.hostfile.empty()) {
    return std::string("cloud_provider ssh needs hosts or hostfile");
  }
  if (c.cloud_provider == "exec" && c.cloud_command.empty()) {
    return std::string("cloud_provider exec needs cloud_command");
  }
  if (c.cloud_provider == "local" && !c.cloud_bundle.empty()) {
    return std::string("cloud_bundle is for other machines; processes of this host need none");
  }
  if (Complaint complaint = check_coordinators_of_servers(c)) {
    return complaint;
  }
  return one_of("cloud_provider", c.cloud_provider, cloud_provider_names());
}

Complaint check_replan(const JobConfig& c) {
  if (!(c.cloud_replan_every >= 1 && c.cloud_replan_every <= 1e6)) {
    return "cloud_replan_every " + shortest_text(c.cloud_replan_every) +
           " is not between 1 and 1e6";
  }
  if (c.cloud_replan != "off" && uses_parameter_servers(c)) {
    return std::string(
        "cloud_replan is for jobs without parameter servers, whose speed is not that of their "
        "workers alone");
  }
  return one_of("cloud_replan", c.cloud_replan, {"off", "propose", "act"});
}

}  // namespace

Complaint check_cloud(const JobConfig& c) {
  return first_of(c, {check_requests, check_provider, check_replan});
}

}  // namespace mayfly::engine
