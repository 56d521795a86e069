// A plan's market and job from a folder with the measurements of studies.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "cli/calibration_folder.hpp"
#include "cli/plan_source.hpp"
#include "cli/run_facts.hpp"
#include "engine/config/cloud_offers.hpp"
#include "planner/models/accuracy.hpp"
#include "planner/models/lifetime.hpp"
#include "planner/simulation/calibrated_market.hpp"

namespace mayfly::cli {
namespace {

using planner::Forecast;

constexpr double kTimesMeasured = 3;  // times the operations of the largest measured network
constexpr int kServersMost = 8;
constexpr const char* kAsp = "asp";
constexpr const char* kBsp = "bsp";

/// The models of the folder, and the question to them.
struct Study {
  explicit Study(planner::Calibration tables) : models(std::move(tables)) {}

  planner::FittedModels models;
  planner::Cluster job;  ///< without workers, with the first number of servers
  std::vector<int> servers;
  std::vector<std::string> policies;  ///< if there are servers
};

/// Wraps a speed so that it is computed once for each set of workers, for all threads. It holds the
/// study, whose models it reads.
planner::ClusterSpeed remembered(const std::shared_ptr<const Study>& study,
                                 planner::ClusterSpeed speed) {
  struct Known {
    std::mutex mutex;
    std::map<std::vector<std::uint32_t>, double> speeds;  // guarded by mutex
  };
  return [study, speed = std::move(speed),
          known = std::make_shared<Known>()](std::span<const std::uint32_t> workers) {
    const std::vector<std::uint32_t> key(workers.begin(), workers.end());
    {
      const std::scoped_lock lock(known->mutex);
      if (const auto found = known->speeds.find(key); found != known->speeds.end()) {
        return found->second;
      }
    }
    const double computed = speed(workers);
    const std::scoped_lock lock(known->mutex);
    return known->speeds[key] = computed;
  };
}

Result<Forecast> speed_of_one(const Study& study, const std::string& gpu) {
  planner::Cluster cluster = study.job;
  cluster.workers = {{gpu, 1}};
  return study.models.cluster_speeds.speed(cluster);
}

/// Machine types and the regions in which their lifetimes were measured. As in the model of
/// lifetimes, single servers count only for a type without a table by hour.
std::map<std::string, std::set<std::string>> regions_of(const planner::Calibration& calibration) {
  std::map<std::string, std::set<std::string>> regions;
  for (const planner::LifetimeByHourRow& row : calibration.lifetimes_by_hour) {
    regions[row.gpu].insert(row.region);
  }
  constexpr std::string_view kServer = " server";
  const auto by_hour = regions;
  for (const planner::PriceRow& row : calibration.prices) {
    if (!row.resource.starts_with("1x") || !row.resource.ends_with(kServer)) {
      continue;
    }
    const std::string gpu = row.resource.substr(2, row.resource.size() - 2 - kServer.size());
    (void)regions[gpu];
    for (const planner::LifetimeServerRow& server : calibration.lifetime_servers) {
      if (server.gpu == gpu && row.market == "spot" && !by_hour.contains(gpu)) {
        regions[gpu].insert(server.zone);
      }
    }
  }
  return regions;
}

/// Parses the numbers of parameter servers: "1", or several with commas.
Result<std::vector<int>> parameter_servers_of(const ParsedArguments& arguments) {
  const std::string text = arguments.option("parameter-servers", "1");
  std::set<int> counts;
  for (const std::string_view part : split(text, ',')) {
    const auto count = number_in<int>(part, 0, kServersMost);
    if (!count) {
      return Error{Errc::kInvalidInput,
                   fmt::format("--parameter-servers {}: expects 0 to {}, or several such as 1,2",
                               text, kServersMost)};
    }
    counts.insert(*count);
  }
  if (counts.contains(0) && counts.size() > 1) {
    return Error{Errc::kInvalidInput,
                 "--parameter-servers " + text +
                     ": 0 cannot be combined with other numbers, because all workers compute a "
                     "step together without parameter servers"};
  }
  return std::vector<int>(counts.begin(), counts.end());
}

Result<std::vector<std::string>> policies_of(const ParsedArguments& arguments) {
  const std::string text = arguments.option("policies", kAsp);
  std::set<std::string> policies;
  for (const std::string_view part : split(text, ',')) {
    if (part != kAsp && part != kBsp) {
      return Error{Errc::kInvalidInput,
                   "--policies " + text + ": expects asp, bsp, or both with a comma"};
    }
    policies.insert(std::string(part));
  }
  return std::vector<std::string>(policies.begin(), policies.end());
}

Result<std::shared_ptr<const Study>> read_study(const ParsedArguments& arguments) {
  TRY_ASSIGN(CalibrationFolder folder, read_calibration(arguments.option("calibration")));
  auto study = std::make_shared<Study>(std::move(folder.calibration));
  planner::Network network;
  network.model = arguments.option("network");
  network.family = arguments.option("family");
  double gflops = 0;
  TRY(read_number(arguments, "gflops", gflops));
  if (gflops > 0) {
    network.gflops = gflops;
  }
  if (network.model.empty() && network.family.empty()) {
    return Error{Errc::kInvalidInput,
                 "plan --calibration needs the network: --network NAME of the tables, or --family "
                 "with --gflops"};
  }
  study->job.network = study->models.networks.completed(network);
  TRY_ASSIGN(study->servers, parameter_servers_of(arguments));
  TRY_ASSIGN(study->policies, policies_of(arguments));
  if (study->servers.front() == 0 && !arguments.option("policies").empty()) {
    return Error{Errc::kInvalidInput,
                 "--policies is for jobs with parameter servers; --parameter-servers 0 has none"};
  }
  study->job.parameter_servers = study->servers.front();
  return std::shared_ptr<const Study>(study);
}

/// Adds each policy with each number of servers.
Result<void> add_servings(const std::shared_ptr<const Study>& study,
                          const std::vector<std::string>& gpus, planner::JobModel& job) {
  if (study->servers.front() == 0) {
    return {};
  }
  TRY_ASSIGN(const double price, study->models.prices.parameter_server());
  for (const std::string& policy : study->policies) {
    for (const int servers : study->servers) {
      planner::Cluster cluster = study->job;
      cluster.parameter_servers = servers;
      job.servings.push_back(planner::calibrated_serving(study->models, cluster, gpus,
                                                         policy == kBsp, price * kSecondsPerHour));
      job.servings.back().speed = remembered(study, job.servings.back().speed);
    }
  }
  return {};
}

std::string job_words(const Study& study, double steps) {
  const std::string& model = study.job.network.model;
  return fmt::format("{:.0f} steps of {}{}", steps,
                     model.empty() ? study.job.network.family : model,
                     study.servers.front() == 0 ? " without parameter servers" : "");
}

/// Adds a warning if the network is much larger than the measured ones; it is planned nevertheless.
void warn_of_size(const Study& study, std::vector<std::string>& warnings) {
  double most = 0;
  for (const planner::StepTimeRow& row : study.models.calibration.step_times) {
    most = std::max(most, row.family == study.job.network.family ? row.gflops : 0);
  }
  const double asked = study.job.network.gflops.value_or(0);
  if (most > 0 && asked > kTimesMeasured * most) {
    warnings.push_back(fmt::format(
        "the network has {:.1f} times the operations of the largest measured one of its family; "
        "its speeds are extrapolated",
        asked / most));
  }
}

void add_offers(const Study& study, PlanSource& source, std::vector<std::string>& gpus) {
  for (const auto& [gpu, regions] : regions_of(study.models.calibration)) {
    Result<Forecast> speed = speed_of_one(study, gpu);
    if (speed.ok() && !(speed.value().quantile(0.5) > 0)) {
      speed = Error{Errc::kNotFound, "no speed above 0 follows for one " + gpu + " worker"};
    }
    std::vector<cloud_hooks::Offer> offers;
    for (const std::string& region : regions) {
      offers.push_back({gpu, region, cloud_hooks::Market::kSpot});
    }
    offers.push_back({gpu, "", cloud_hooks::Market::kOnDemand});
    for (const cloud_hooks::Offer& offer : offers) {
      Result<planner::OfferModel> model =
          planner::calibrated_offer(study.models, study.job.network, offer);
      if (!speed.ok() || !model.ok()) {
        source.left_out.push_back({cloud_hooks::to_string(offer),
                                   speed.ok() ? model.error().detail : speed.error().detail});
        continue;
      }
      const auto machine = std::ranges::find(gpus, gpu);
      model.value().machine = static_cast<std::size_t>(machine - gpus.begin());
      if (machine == gpus.end()) {
        gpus.push_back(gpu);
      }
      const auto zone =
          std::ranges::find(source.market.zones, offer.zone, &planner::ZoneModel::name);
      model.value().zone = static_cast<std::size_t>(zone - source.market.zones.begin());
      if (zone == source.market.zones.end()) {
        source.market.zones.push_back(planner::calibrated_zone(study.models, offer.zone));
      }
      source.speeds.push_back(speed.value().quantile(0.5));
      source.market.offers.push_back(std::move(model).value());
    }
  }
}

/// The folder's model of an offer; null if there is none. Models of on-demand servers have no zone,
/// those of spot servers may have only a region, and those from own runs have machine types as
/// machine_of_offer() writes them.
const planner::OfferModel* find_known(const std::vector<planner::OfferModel>& known,
                                      const cloud_hooks::Offer& offer) {
  const bool is_on_demand = offer.market == cloud_hooks::Market::kOnDemand;
  for (const std::string& type : {offer.machine_type, machine_of_offer(offer)}) {
    for (const std::string& zone : {offer.zone, planner::region_of(offer.zone)}) {
      const cloud_hooks::Offer as_known{type, is_on_demand ? "" : zone, offer.market};
      const auto found = std::ranges::find(known, as_known, &planner::OfferModel::offer);
      if (found != known.end()) {
        return &*found;
      }
    }
  }
  return nullptr;
}

/// Keeps the offers of the folder that are also offers of the job, with the job's prices.
Result<void> keep_offers_of(const engine::JobConfig& config, PlanSource& source) {
  TRY_ASSIGN(const std::vector<cloud_hooks::OfferTerms> terms,
             engine::parse_offers(config.cloud_offers));
  if (terms.empty()) {
    return {};
  }
  const std::vector<planner::OfferModel> known = std::move(source.market.offers);
  const std::vector<double> speeds = std::move(source.speeds);
  source.market.offers.clear();
  source.speeds.clear();
  for (const cloud_hooks::OfferTerms& one : terms) {
    const planner::OfferModel* const found = find_known(known, one.offer);
    if (found == nullptr) {
      if (std::ranges::find(source.left_out, cloud_hooks::to_string(one.offer), &LeftOut::offer) ==
          source.left_out.end()) {
        source.left_out.push_back(
            {cloud_hooks::to_string(one.offer), "the folder contains no measurements of it"});
      }
      continue;
    }
    source.market.offers.push_back(*found);
    planner::OfferModel& model = source.market.offers.back();
    model.offer = one.offer;
    model.price_per_hour = one.price_per_hour > 0 ? one.price_per_hour : model.price_per_hour;
    model.workers_most = one.workers_most;
    source.speeds.push_back(speeds[static_cast<std::size_t>(found - known.data())]);
  }
  return {};
}

/// Adds warnings about losses that the folder does not show.
void warn_of_losses(const Study& study, PlanSource& source) {
  const planner::Lifetimes& lifetimes = study.models.lifetimes;
  if (!lifetimes.is_any_lost() && std::ranges::any_of(source.market.offers, planner::is_spot)) {
    source.warnings.push_back(
        fmt::format("no server was lost in the {:.3g} server-hours of the folder: the plan expects "
                    "no losses, which are possible; --market can specify them",
                    lifetimes.server_hours()));
  }
}

}  // namespace

Result<PlanSource> source_of_calibration(const ParsedArguments& arguments,
                                         const engine::JobConfig& config) {
  TRY_ASSIGN(const std::shared_ptr<const Study> study, read_study(arguments));
  PlanSource source;
  std::vector<std::string> gpus;
  add_offers(*study, source, gpus);
  TRY(keep_offers_of(config, source));
  if (source.market.offers.empty()) {
    return Error{Errc::kInvalidInput,
                 "plan can use no offer: " +
                     (source.left_out.empty()
                          ? std::string("the folder has neither lifetimes nor prices")
                          : source.left_out[0].offer + ": " + source.left_out[0].reason)};
  }
  source.market.machines = gpus.size();
  const std::optional<planner::JobSize> size = planner::job_size(study->models.calibration);
  const bool is_known = size && size->model == study->job.network.model;
  source.job.work = config.steps > 0 ? static_cast<double>(config.steps)
                    : is_known       ? std::round(size->steps)
                                     : 0;
  source.steps = static_cast<std::uint64_t>(source.job.work);
  if (source.job.work <= 0) {
    return Error{Errc::kInvalidInput, "plan needs the length of the job: --steps N"};
  }
  source.job.server_lifetime_s = config.cloud_lifetime_hours * kSecondsPerHour;
  source.job.first_wait_s = config.min_workers_timeout;
  source.job.speed = remembered(study, planner::calibrated_speed(study->models, study->job, gpus));
  const Result<Forecast> one = speed_of_one(*study, gpus.front());
  source.job.speed_log_sd = planner::log_sd(one.value());
  if (const Result<Forecast> recovery =
          planner::recovery_time(study->models.calibration, study->job.network.model, "lost");
      recovery.ok()) {
    source.job.recovery_s = recovery.value().quantile(0.5);
  }
  if (const Result<Forecast> checkpoint = study->models.checkpoints.stored(study->job.network);
      checkpoint.ok()) {
    source.job.checkpoint_s = checkpoint.value().quantile(0.5);
  }
  TRY(add_servings(study, gpus, source.job));
  for (const planner::ClusterSpeedRow& row : study->models.calibration.cluster_speeds) {
    source.measured_most =
        std::max(source.measured_most, static_cast<std::uint32_t>(kTimesMeasured * row.workers));
  }
  if (planner::asynchronous_accuracy(study->models.calibration, 1).ok()) {
    source.accuracy = [study, servings = source.job.servings](
                          const planner::Candidate& candidate) -> std::optional<double> {
      const bool waits = servings.empty() || servings[candidate.serving].is_synchronous;
      const auto accuracy =
          planner::asynchronous_accuracy(study->models.calibration, waits ? 1 : candidate.workers);
      return accuracy.ok() ? std::optional(accuracy.value().quantile(0.5)) : std::nullopt;
    };
  }
  warn_of_size(*study, source.warnings);
  warn_of_losses(*study, source);
  source.job_text = job_words(*study, source.job.work);
  source.priced = source.calibrated = "the study in " + arguments.option("calibration");
  return source;
}

}  // namespace mayfly::cli
