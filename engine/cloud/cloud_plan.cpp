#include "engine/cloud/cloud_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/system_random.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/bundle/program_bundle.hpp"
#include "cloud_hooks/core/replacement_events.hpp"
#include "cloud_hooks/core/replacement_policy.hpp"
#include "cloud_hooks/http/message.hpp"
#include "engine/cloud/cloud_memory.hpp"
#include "engine/cloud/cloud_provider.hpp"
#include "engine/cloud/cloud_startup.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/cloud_offers.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/run_place.hpp"

namespace mayfly::engine {
namespace {

/// The offers for workers, then those for evaluators. kInvalidInput if one cannot be read or has no
/// price although there is a budget.
Result<std::vector<cloud_hooks::OfferTerms>> all_offers(const JobConfig& config) {
  TRY_ASSIGN(std::vector<cloud_hooks::OfferTerms> offers, worker_offers(config));
  if (offers.empty()) {
    offers.emplace_back().price_per_hour = config.price_per_hour;  // any server of the provider
  }
  TRY_ASSIGN(std::vector<cloud_hooks::OfferTerms> for_evaluators,
             parse_offers(config.evaluator_offers, "evaluator_offers"));
  for (cloud_hooks::OfferTerms& terms : for_evaluators) {
    terms.for_evaluator = true;
    offers.push_back(std::move(terms));
  }
  const bool has_budget = config.cloud_budget > 0 || config.cloud_budget_per_hour > 0;
  if (has_budget && std::ranges::count(offers, 0.0, &cloud_hooks::OfferTerms::price_per_hour) > 0) {
    return Error{Errc::kInvalidInput,
                 "a budget needs the price of every offer: TYPE@ZONE:MARKET=PRICE in "
                 "cloud_offers and evaluator_offers, or price_per_hour "
                 "without offers"};
  }
  return offers;
}

/// The longest time in seconds for which servers that no coordinator releases are billed: some
/// providers end them after their lifetime.
double longest_left_s(const JobConfig& config, const cloud_hooks::ReplacementOptions& options) {
  const std::string& provider = config.cloud_provider;
  const bool ends_servers = provider == "gce" || provider == "ec2" || provider == "slurm";
  return ends_servers && options.lifetime_max > Duration(0) ? to_seconds(options.lifetime_max)
                                                            : std::numeric_limits<double>::max();
}

/// Workers train while there is no coordinator. If that exhausts the budget, all servers would be
/// released at once, together with the only copies of the state. So the job stops at once, but its
/// servers get the usual time to save the state. They get it only once, because the next process
/// finds that the budget was exhausted before.
void leave_time_to_stop(const CloudMemory& memory, cloud_hooks::ReplacementOptions& options) {
  const double price = options.per_hour_before * to_seconds(options.stop_margin) / kSecondsPerHour;
  if (options.budget && price > 0 && memory.spent + price < *options.budget) {
    options.budget = std::max(*options.budget, options.spent_before + price);
  }
}

/// Continues from the facts that an earlier process of this job stored, and adds the cost of its
/// servers since then.
void go_on_from(const CloudMemory& memory, const JobConfig& config,
                cloud_hooks::ReplacementOptions& options) {
  options.restarted = true;
  options.spent_is_known = true;
  options.spent_before = memory.spent;
  if (options.provider.survives_us) {
    const double away = std::max(0.0, wall_clock_seconds() - memory.at);
    const double most = longest_left_s(config, options);
    options.per_hour_before = away < most ? memory.per_hour : 0;
    options.spent_before += memory.per_hour * std::min(away, most) / kSecondsPerHour;
    leave_time_to_stop(memory, options);
  }
}

/// Applies the value of kListSecondsVariable if it is set.
Result<void> list_as_tests_say(cloud_hooks::ReplacementOptions& options) {
  const char* text = std::getenv(kListSecondsVariable);
  if (text == nullptr) {
    return {};
  }
  const std::optional<std::int64_t> number = number_in<std::int64_t>(text, 1, 3600);
  if (!number) {
    return Error{Errc::kInvalidInput, fmt::format("{}={}: it must be whole seconds from 1 to 3600",
                                                  kListSecondsVariable, text)};
  }
  options.list_every = seconds(*number);
  options.absence_grace = options.list_every;
  return {};
}

}  // namespace

Result<cloud_hooks::ReplacementOptions> replacement_options(
    const JobConfig& config, const cloud_hooks::Capabilities& provider) {
  cloud_hooks::ReplacementOptions options;
  TRY_ASSIGN(options.offers, all_offers(config));
  options.identity = system_random();
  options.job_mark = token_mark(config);
  const std::uint32_t servers = dedicated_servers(config);
  const bool have_own_offers = !config.evaluator_offers.empty();
  const std::uint32_t beside = servers + (have_own_offers ? 0 : config.evaluators);
  options.target = config.workers + beside;
  options.max = std::max(config.workers, config.cloud_max_workers) + beside;
  options.evaluators = have_own_offers ? config.evaluators : 0;
  options.on_demand_floor = config.cloud_on_demand_floor;
  options.provider = provider;
  if (config.cloud_budget > 0) {
    options.budget = config.cloud_budget;
  }
  if (config.cloud_budget_per_hour > 0) {
    options.budget_per_hour = config.cloud_budget_per_hour;
  }
  options.lifetime_max =
      seconds(static_cast<std::int64_t>(config.cloud_lifetime_hours * kSecondsPerHour));
  options.start_timeout = Duration(static_cast<std::int64_t>(config.cloud_start_timeout * 1e9));
  options.join_timeout = options.start_timeout;
  options.back_to_spot_after = Duration(static_cast<std::int64_t>(config.cloud_back_to_spot * 1e9));
  TRY(list_as_tests_say(options));
  if (!provider.survives_us) {  // processes on this host: listing them costs nothing and is exact
    options.list_every = seconds(1);
    options.absence_grace = Duration(0);
    options.rejoin_patience = seconds(5);
  }
  if (config.cloud_provider == "ssh") {  // a host that returns is used at once; listing is free
    options.list_every = seconds(5);
    options.absence_grace = seconds(5);
    options.rejoin_patience = seconds(5);
    options.backoff.max = seconds(10);
    options.lifetime_max = Duration(0);
  }
  if (config.standby) {  // the cost so far is in the run directory of the earlier coordinator
    options.restarted = true;
    options.spent_is_known = false;
  }
  if (const std::optional<CloudMemory> memory = read_cloud_memory(config.run_dir)) {
    go_on_from(*memory, config, options);
  }
  return options;
}

namespace {

/// The start-up script of a request, without the token.
Result<std::string> text_to_show(const JobConfig& config, const std::string& coordinators) {
  const std::string token = "(the token)";
  if (config.cloud_provider == "ssh" || config.cloud_bundle.empty()) {
    return startup_text(config, coordinators, token);
  }
  const Result<cloud_hooks::BundleFile> bundle = cloud_hooks::open_bundle(config.cloud_bundle);
  if (!bundle.ok()) {
    return Error{Errc::kInvalidInput, "cloud_bundle: " + bundle.error().detail};
  }
  TRY_ASSIGN(const std::string start, served_start(config, coordinators, bundle.value().sha256));
  const std::string address = fmt::format("{}:{}", config.bind_host, config.cloud_bundle_port);
  return fetching_text(config, address, token, cloud_hooks::to_hex(cloud_hooks::sha256(start)));
}

}  // namespace

int show_cloud_plan(const JobConfig& requested) {
  JobConfig config = requested;
  resolve_defaults(config);
  const Result<std::string> host = coordinator_host(config);
  if (!host.ok()) {
    return refuse(host.error(), kExitUsage);
  }
  config.bind_host = host.value();
  const std::string endpoint = fmt::format("{}:{}", config.bind_host, config.port);
  const Result<std::unique_ptr<cloud_hooks::Provider>> provider =
      make_cloud_provider(config, cloud_label(config), {own_program(), "worker"});
  if (!provider.ok()) {
    return refuse(provider.error(), kExitUsage);
  }
  Result<std::string> text = text_to_show(config, worker_coordinators(config, endpoint));
  Result<cloud_hooks::ReplacementOptions> options =
      replacement_options(config, provider.value()->capabilities());
  for (const Error* error :
       {text.ok() ? nullptr : &text.error(), options.ok() ? nullptr : &options.error()}) {
    if (error != nullptr) {
      return refuse(*error, kExitUsage);
    }
  }
  options.value().startup_text = std::move(text).value();
  options.value().provider.survives_us = false;  // the policy would list servers first
  options.value().restarted = false;
  cloud_hooks::ReplacementPolicy policy(std::move(options).value());
  for (const cloud_hooks::PolicyEffect& effect :
       policy.handle(Instant{}, cloud_hooks::policy_event::Begin{})) {
    if (const auto* request = std::get_if<cloud_hooks::policy_effect::Request>(&effect)) {
      std::cout << provider.value()->preview(request->request) << "\n";
    } else if (const auto* note = std::get_if<cloud_hooks::policy_effect::Note>(&effect)) {
      std::cout << "# " << note->kind << ": " << note->detail << "\n";
    }
  }
  std::cout << fmt::format("# {:.4g} per hour in all\n", policy.status(Instant{}).per_hour);
  return kExitDone;
}

}  // namespace mayfly::engine
