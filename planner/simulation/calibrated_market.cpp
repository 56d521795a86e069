#include "planner/simulation/calibrated_market.hpp"

#include <algorithm>
#include <cmath>

#include "base/time.hpp"
#include "base/try_assign.hpp"

namespace mayfly::planner {
namespace {

constexpr double kInterval90 = 3.29;  // standard deviations between the quantiles 5 and 95 %
constexpr int kQuantiles = 40;

QuantileTable quantiles_of(const Forecast& forecast) {
  std::vector<double> values;
  for (int i = 0; i < kQuantiles; ++i) {
    values.push_back(std::max(0.0, forecast.quantile((i + 0.5) / kQuantiles)));
  }
  return QuantileTable::of_samples(std::move(values));
}

/// The uncertainty of the level of a region's hazard, from the share of servers that are lost in
/// their first six hours.
double hazard_spread(const Lifetimes& lifetimes, const std::string& gpu,
                     const std::string& region) {
  constexpr double kHours = 6;
  const Result<Forecast> share = lifetimes.revoked_share(gpu, region, 0, kHours, 0);
  if (!share.ok()) {
    return 0;
  }
  const Estimate lost = share.value().summary();
  const auto hazard = [](double of) { return -std::log(1 - std::clamp(of, 1e-3, 0.999)); };
  return std::log(hazard(lost.high) / hazard(lost.low)) / kInterval90;
}

}  // namespace

double log_sd(const Forecast& forecast) {
  const Estimate estimate = forecast.summary();
  return estimate.low > 0 ? std::log(estimate.high / estimate.low) / kInterval90 : 0;
}

Result<OfferModel> calibrated_offer(const FittedModels& models, const Network& network,
                                    const cloud_hooks::Offer& offer) {
  const std::string& gpu = offer.machine_type;
  const bool is_spot = offer.market == cloud_hooks::Market::kSpot;
  OfferModel model;
  model.offer = offer;
  TRY_ASSIGN(const double price, models.prices.server(gpu, cloud_hooks::to_string(offer.market)));
  model.price_per_hour = price * kSecondsPerHour;
  TRY_ASSIGN(const Forecast start,
             models.startups.start(gpu, is_spot ? "preemptible" : "on_demand", "", ""));
  model.start_up = quantiles_of(start);
  const Result<Forecast> join =
      join_time(models.calibration, models.networks, network, "new server");
  model.join = join.ok() ? quantiles_of(join.value()) : QuantileTable();
  if (is_spot) {
    TRY_ASSIGN(const LifetimeTable curve, models.lifetimes.curve(gpu, offer.zone));
    const Result<LossBursts> bursts = models.lifetimes.bursts();
    const double alone = bursts.ok() ? 1 - bursts.value().share_of_losses : 1;
    model.lifetime = curve.scaled(alone);
    model.hazard_log_sd = hazard_spread(models.lifetimes, gpu, offer.zone);
  }
  return model;
}

ZoneModel calibrated_zone(const FittedModels& models, const std::string& region) {
  ShockModel shocks;
  if (const Result<LossBursts> bursts = models.lifetimes.bursts(); bursts.ok()) {
    shocks.per_hour = bursts.value().shocks_per_hour;
    shocks.share = bursts.value().share_taken;
  }
  return {region, shocks};
}

ClusterSpeed calibrated_speed(const FittedModels& models, Cluster job,
                              std::vector<std::string> gpus, bool is_synchronous) {
  return [&models, job = std::move(job), gpus = std::move(gpus),
          is_synchronous](std::span<const std::uint32_t> workers) {
    Cluster cluster = job;
    cluster.workers.clear();
    for (std::size_t machine = 0; machine < workers.size(); ++machine) {
      if (workers[machine] > 0) {
        cluster.workers.push_back({gpus[machine], static_cast<double>(workers[machine])});
      }
    }
    const Result<Forecast> speed = is_synchronous ? models.cluster_speeds.synchronous_speed(cluster)
                                                  : models.cluster_speeds.speed(cluster);
    return speed.ok() ? speed.value().quantile(0.5) : 0;
  };
}

ParameterServing calibrated_serving(const FittedModels& models, Cluster job,
                                    const std::vector<std::string>& gpus, bool is_synchronous,
                                    double price_per_hour) {
  ParameterServing serving;
  serving.servers = static_cast<std::uint32_t>(job.parameter_servers);
  serving.is_synchronous = is_synchronous;
  serving.cost_per_hour = price_per_hour * job.parameter_servers;
  serving.words = std::string(is_synchronous ? "BSP" : "ASP") + " with " +
                  std::to_string(serving.servers) + " parameter server" +
                  (serving.servers == 1 ? "" : "s");
  const bool is_measured =
      std::ranges::any_of(models.calibration.cluster_speeds, [&](const ClusterSpeedRow& row) {
        return row.parameter_servers == job.parameter_servers && row.workers > 1;
      });
  serving.words += is_synchronous ? " (speed derived, not measured)"
                   : !is_measured ? " (no cluster with so many was measured)"
                                  : "";
  Cluster one = job;
  one.workers = {{gpus.front(), 1}};
  const Result<Forecast> known = is_synchronous ? models.cluster_speeds.synchronous_speed(one)
                                                : models.cluster_speeds.speed(one);
  // The bounds of a synchronous speed differ by a factor of two at most, with any number of
  // workers.
  const double bounds = is_synchronous ? std::log(2) / kInterval90 : 0;
  serving.speed_log_sd = known.ok() ? std::hypot(log_sd(known.value()), bounds) : bounds;
  serving.speed = calibrated_speed(models, std::move(job), gpus, is_synchronous);
  return serving;
}

}  // namespace mayfly::planner
