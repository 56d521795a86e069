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

/// How little is known of the level of a region's hazard, from the share lost within a day's first
/// quarter.
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
                              std::vector<std::string> gpus) {
  return [&models, job = std::move(job),
          gpus = std::move(gpus)](std::span<const std::uint32_t> workers) {
    Cluster cluster = job;
    cluster.workers.clear();
    for (std::size_t machine = 0; machine < workers.size(); ++machine) {
      if (workers[machine] > 0) {
        cluster.workers.push_back({gpus[machine], static_cast<double>(workers[machine])});
      }
    }
    const Result<Forecast> speed = models.cluster_speeds.speed(cluster);
    return speed.ok() ? speed.value().quantile(0.5) : 0;
  };
}

}  // namespace mayfly::planner
