#pragma once

// A market and the speed of a job on it, from the models of a calibration. Pure; any thread.

#include <string>
#include <vector>

#include "planner/models/fitted.hpp"
#include "planner/simulation/market.hpp"

namespace mayfly::planner {

/// The spread of a forecast: the standard deviation of its logarithm; 0 if the forecast reaches 0.
[[nodiscard]] double log_sd(const Forecast& forecast);

/// A server of `offer.machine_type`, with the lifetimes of the region `offer.zone` (empty = all
/// regions) if it is a spot server. Losses that occur together are not in its lifetime but in
/// calibrated_zone(). kNotFound with what the calibration lacks: a price, start-ups or lifetimes.
[[nodiscard]] Result<OfferModel> calibrated_offer(const FittedModels& models,
                                                  const Network& network,
                                                  const cloud_hooks::Offer& offer);

/// A region with its shocks, that is, losses that occur together; they are fitted to all regions.
[[nodiscard]] ZoneModel calibrated_zone(const FittedModels& models, const std::string& region);

/// Steps per second by the numbers of workers of each machine type, `gpus`; `job` has the rest of
/// the cluster. 0 for a cluster whose speed is not known. Each call evaluates the models. `models`
/// must outlive it. `is_synchronous`: the workers wait for each other, and the speed is in updates
/// of one worker.
[[nodiscard]] ClusterSpeed calibrated_speed(const FittedModels& models, Cluster job,
                                            std::vector<std::string> gpus,
                                            bool is_synchronous = false);

/// How a job trains with `job.parameter_servers` parameter servers, asynchronously or
/// synchronously; `price_per_hour` is that of one server. The words of the result warn if no
/// measurement supports it: the calibration has no cluster with that number of servers, or the job
/// is synchronous.
[[nodiscard]] ParameterServing calibrated_serving(const FittedModels& models, Cluster job,
                                                  const std::vector<std::string>& gpus,
                                                  bool is_synchronous, double price_per_hour);

}  // namespace mayfly::planner
