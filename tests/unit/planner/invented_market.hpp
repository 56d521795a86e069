#pragma once

// Invented markets for tests, whose true values are known.

#include <numeric>

#include "planner/simulation/market.hpp"

namespace mayfly::planner::test_support {

inline constexpr double kHour = 3600;

inline OfferModel spot_offer(double price, LifetimeTable lifetime, double start_up_s,
                             std::size_t zone = 0, std::size_t machine = 0) {
  OfferModel model;
  model.offer = {"m" + std::to_string(machine), "z" + std::to_string(zone),
                 cloud_hooks::Market::kSpot};
  model.price_per_hour = price;
  model.machine = machine;
  model.zone = zone;
  model.lifetime = std::move(lifetime);
  model.start_up = QuantileTable({start_up_s});
  return model;
}

inline OfferModel on_demand_offer(double price, double start_up_s, std::size_t zone = 0,
                                  std::size_t machine = 0) {
  OfferModel model = spot_offer(price, LifetimeTable(), start_up_s, zone, machine);
  model.offer.market = cloud_hooks::Market::kOnDemand;
  return model;
}

inline Market market_of(std::vector<OfferModel> offers, std::size_t zones = 1,
                        std::size_t machines = 1) {
  Market market;
  market.offers = std::move(offers);
  market.zones.resize(zones);
  market.machines = machines;
  return market;
}

/// A job of so many hours for one worker of machine 0; machine m is m + 1 times as fast, and the
/// speeds add up.
inline JobModel job_of(double hours) {
  JobModel job;
  job.work = hours * kHour;
  job.speed = [](std::span<const std::uint32_t> workers) {
    double sum = 0;
    for (std::size_t machine = 0; machine < workers.size(); ++machine) {
      sum += workers[machine] * static_cast<double>(machine + 1);
    }
    return sum;
  };
  return job;
}

inline Candidate workers_on(std::vector<std::size_t> offers, std::uint32_t workers) {
  Candidate candidate;
  candidate.offers = std::move(offers);
  candidate.workers = workers;
  return candidate;
}

}  // namespace mayfly::planner::test_support
