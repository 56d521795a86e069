#pragma once

// A market and the speed of a job on it, as the models of a calibration know them.
// Pure; any thread.

#include <string>
#include <vector>

#include "planner/models/fitted.hpp"
#include "planner/simulation/market.hpp"

namespace mayfly::planner {

/// How far a forecast spreads: the standard deviation of its logarithm; 0 if it reaches 0.
[[nodiscard]] double log_sd(const Forecast& forecast);

/// A server of `offer.machine_type`, with the lifetimes of the region `offer.zone` (empty = of all)
/// if it is a spot server. The losses that come together are not in its lifetime: calibrated_zone
/// has them. kNotFound with what the calibration lacks: a price, start-ups or lifetimes.
[[nodiscard]] Result<OfferModel> calibrated_offer(const FittedModels& models,
                                                  const Network& network,
                                                  const cloud_hooks::Offer& offer);

/// A region with the losses that come together, which are those of all regions.
[[nodiscard]] ZoneModel calibrated_zone(const FittedModels& models, const std::string& region);

/// Steps per second by the numbers of workers of each machine type, `gpus`; `job` has the rest of
/// the cluster. 0 for a cluster whose speed is not known. Each call asks the models anew. `models`
/// must outlive it. `is_synchronous`: of workers that wait for each other, in updates of one.
[[nodiscard]] ClusterSpeed calibrated_speed(const FittedModels& models, Cluster job,
                                            std::vector<std::string> gpus,
                                            bool is_synchronous = false);

/// Jobs with that many parameter servers, asynchronous or synchronous; `job` has the network, and
/// `price_per_hour` is that of one server. The words name what the calibration does not know: a
/// number of servers that it has no cluster with, or any synchronous job.
[[nodiscard]] ParameterServing calibrated_serving(const FittedModels& models, Cluster job,
                                                  const std::vector<std::string>& gpus,
                                                  bool is_synchronous, double price_per_hour);

}  // namespace mayfly::planner
