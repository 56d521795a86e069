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
#include "planner/billing.hpp"
#include "planner/models/accuracy.hpp"
#include "planner/models/cluster_speed.hpp"
#include "planner/models/lifetime.hpp"
#include "planner/models/networks.hpp"
#include "planner/models/startup.hpp"
#include "planner/models/step_time.hpp"

namespace mayfly::cli {
namespace {

using planner::Forecast;

constexpr double kInterval90 = 3.29;  // standard deviations between the quantiles 5 and 95 %
constexpr double kTimesMeasured = 3;  // times the operations of the largest measured network
constexpr int kQuantiles = 40;
constexpr int kServersMost = 8;

/// The models of the folder, and what is asked of them.
struct Study {
  explicit Study(planner::Calibration tables)
      : calibration(std::move(tables)),
        networks(calibration),
        step_times(calibration),
        speeds(calibration, step_times, networks),
        lifetimes(calibration),
        startups(calibration),
        prices(calibration) {}

  planner::Calibration calibration;
  planner::Networks networks;
  planner::StepTimes step_times;
  planner::ClusterSpeeds speeds;
  planner::Lifetimes lifetimes;
  planner::Startups startups;
  planner::Prices prices;
  planner::Network network;
  int parameter_servers = 1;
};

double log_sd(const planner::Estimate& estimate) {
  return estimate.low > 0 ? std::log(estimate.high / estimate.low) / kInterval90 : 0;
}

planner::QuantileTable quantiles_of(const Forecast& forecast) {
  std::vector<double> values;
  for (int i = 0; i < kQuantiles; ++i) {
    values.push_back(std::max(0.0, forecast.quantile((i + 0.5) / kQuantiles)));
  }
  return planner::QuantileTable::of_samples(std::move(values));
}

/// How little is known of the level of a region's hazard, from the share lost within a day's first
/// quarter.
double hazard_spread(const Study& study, const std::string& gpu, const std::string& region) {
  constexpr double kHours = 6;
  const Result<Forecast> share = study.lifetimes.revoked_share(gpu, region, 0, kHours, 0);
  if (!share.ok()) {
    return 0;
  }
  const planner::Estimate lost = share.value().summary();
  const auto hazard = [](double of) { return -std::log(1 - std::clamp(of, 1e-3, 0.999)); };
  return std::log(hazard(lost.high) / hazard(lost.low)) / kInterval90;
}

/// The speed by the numbers of workers; what was computed once is kept for all threads.
planner::ClusterSpeed speed_of(const std::shared_ptr<const Study>& study,
                               const std::vector<std::string>& gpus) {
  struct Known {
    std::mutex mutex;
    std::map<std::vector<std::uint32_t>, double> speeds;  // guarded by mutex
  };
  return [study, gpus, known = std::make_shared<Known>()](std::span<const std::uint32_t> workers) {
    const std::vector<std::uint32_t> key(workers.begin(), workers.end());
    {
      const std::scoped_lock lock(known->mutex);
      if (const auto found = known->speeds.find(key); found != known->speeds.end()) {
        return found->second;
      }
    }
    planner::Cluster cluster;
    cluster.network = study->network;
    cluster.parameter_servers = study->parameter_servers;
    for (std::size_t machine = 0; machine < key.size(); ++machine) {
      if (key[machine] > 0) {
        cluster.workers.push_back({gpus[machine], static_cast<double>(key[machine])});
      }
    }
    const Result<Forecast> speed = study->speeds.speed(cluster);
    const double median = speed.ok() ? speed.value().quantile(0.5) : 0;
    const std::scoped_lock lock(known->mutex);
    return known->speeds[key] = median;
  };
}

Result<Forecast> speed_of_one(const Study& study, const std::string& gpu) {
  planner::Cluster cluster;
  cluster.network = study.network;
  cluster.parameter_servers = study.parameter_servers;
  cluster.workers = {{gpu, 1}};
  return study.speeds.speed(cluster);
}

/// Machine types and the regions in which lifetimes of them were measured.
std::map<std::string, std::set<std::string>> regions_of(const planner::Calibration& calibration) {
  std::map<std::string, std::set<std::string>> regions;
  for (const planner::LifetimeByHourRow& row : calibration.lifetimes_by_hour) {
    regions[row.gpu].insert(row.region);
  }
  constexpr std::string_view kServer = " server";
  for (const planner::PriceRow& row : calibration.prices) {
    if (row.resource.starts_with("1x") && row.resource.ends_with(kServer)) {
      (void)regions[row.resource.substr(2, row.resource.size() - 2 - kServer.size())];
    }
  }
  return regions;
}

/// An offer with all that the folder says of it; the error is why it is left out.
Result<planner::OfferModel> offer_of(const Study& study, const std::string& gpu,
                                     const std::string& region, cloud_hooks::Market market) {
  const bool is_spot = market == cloud_hooks::Market::kSpot;
  planner::OfferModel model;
  model.offer = {gpu, region, market};
  TRY_ASSIGN(const double price, study.prices.server(gpu, cloud_hooks::to_string(market)));
  model.price_per_hour = price * kSecondsPerHour;
  TRY_ASSIGN(const Forecast start,
             study.startups.start(gpu, is_spot ? "preemptible" : "on_demand", "", ""));
  model.start_up = quantiles_of(start);
  const Result<Forecast> join =
      planner::join_time(study.calibration, study.networks, study.network, "new server");
  model.join = join.ok() ? quantiles_of(join.value()) : planner::QuantileTable();
  if (is_spot) {
    TRY_ASSIGN(const planner::LifetimeTable curve, study.lifetimes.curve(gpu, region));
    const Result<planner::LossBursts> bursts = study.lifetimes.bursts();
    const double alone = bursts.ok() ? 1 - bursts.value().share_of_losses : 1;
    model.lifetime = curve.scaled(alone);  // the others come with the zone's shocks
    model.hazard_log_sd = hazard_spread(study, gpu, region);
  }
  return model;
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
  study->network = study->networks.completed(network);
  const std::string servers = arguments.option("parameter-servers", "1");
  const auto count = number_in<int>(servers, 0, kServersMost);
  if (!count) {
    return Error{Errc::kInvalidInput,
                 fmt::format("--parameter-servers {}: expects 0 to {}", servers, kServersMost)};
  }
  study->parameter_servers = *count;
  return std::shared_ptr<const Study>(study);
}

/// A network far beyond the measured ones is planned with, and the warning says so.
void warn_of_size(const Study& study, std::vector<std::string>& warnings) {
  double most = 0;
  for (const planner::StepTimeRow& row : study.calibration.step_times) {
    most = std::max(most, row.family == study.network.family ? row.gflops : 0);
  }
  const double asked = study.network.gflops.value_or(0);
  if (most > 0 && asked > kTimesMeasured * most) {
    warnings.push_back(fmt::format(
        "the network has {:.1f} times the operations of the largest measured one of its family; "
        "its speeds are extrapolated",
        asked / most));
  }
}

void add_offers(const Study& study, PlanSource& source, std::vector<std::string>& gpus) {
  for (const auto& [gpu, regions] : regions_of(study.calibration)) {
    const Result<Forecast> speed = speed_of_one(study, gpu);
    std::vector<cloud_hooks::Offer> offers;
    for (const std::string& region : regions) {
      offers.push_back({gpu, region, cloud_hooks::Market::kSpot});
    }
    offers.push_back({gpu, "", cloud_hooks::Market::kOnDemand});
    for (const cloud_hooks::Offer& offer : offers) {
      Result<planner::OfferModel> model = offer_of(study, gpu, offer.zone, offer.market);
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
        const Result<planner::LossBursts> bursts = study.lifetimes.bursts();
        planner::ShockModel shocks;
        if (bursts.ok()) {
          shocks.per_hour = bursts.value().shocks_per_hour;
          shocks.share = bursts.value().share_taken;
        }
        source.market.zones.push_back({offer.zone, shocks});
      }
      source.speeds.push_back(speed.value().quantile(0.5));
      source.market.offers.push_back(std::move(model).value());
    }
  }
}

}  // namespace

Result<PlanSource> source_of_calibration(const ParsedArguments& arguments,
                                         const engine::JobConfig& config) {
  TRY_ASSIGN(const std::shared_ptr<const Study> study, read_study(arguments));
  PlanSource source;
  std::vector<std::string> gpus;
  add_offers(*study, source, gpus);
  if (source.market.offers.empty()) {
    return Error{Errc::kInvalidInput,
                 "plan has no offer that it knows enough of: " +
                     (source.left_out.empty()
                          ? std::string("the folder has neither lifetimes nor prices")
                          : source.left_out[0].offer + ": " + source.left_out[0].reason)};
  }
  source.market.machines = gpus.size();
  const std::optional<planner::JobSize> size = planner::job_size(study->calibration);
  source.job.work = config.steps > 0 ? static_cast<double>(config.steps) : size ? size->steps : 0;
  if (source.job.work <= 0) {
    return Error{Errc::kInvalidInput, "plan needs the length of the job: --steps N"};
  }
  source.job.speed = speed_of(study, gpus);
  const Result<Forecast> one = speed_of_one(*study, gpus.front());
  source.job.speed_log_sd = log_sd(one.value().summary());
  if (study->parameter_servers > 0) {
    TRY_ASSIGN(const double price, study->prices.parameter_server());
    source.job.other_cost_per_hour = price * kSecondsPerHour * study->parameter_servers;
  }
  for (const planner::ClusterSpeedRow& row : study->calibration.cluster_speeds) {
    source.measured_most =
        std::max(source.measured_most, static_cast<std::uint32_t>(kTimesMeasured * row.workers));
  }
  if (planner::asynchronous_accuracy(study->calibration, 1).ok()) {
    source.accuracy = [study](const planner::Candidate& candidate) -> std::optional<double> {
      const auto accuracy = planner::asynchronous_accuracy(study->calibration, candidate.workers);
      return accuracy.ok() ? std::optional(accuracy.value().quantile(0.5)) : std::nullopt;
    };
  }
  warn_of_size(*study, source.warnings);
  source.job_text =
      fmt::format("{:.0f} steps of {} with {} parameter server{}", source.job.work,
                  study->network.model.empty() ? study->network.family : study->network.model,
                  study->parameter_servers, study->parameter_servers == 1 ? "" : "s");
  source.priced = source.calibrated = "the study in " + arguments.option("calibration");
  return source;
}

}  // namespace mayfly::cli
