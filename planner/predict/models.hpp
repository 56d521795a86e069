#pragma once

// The quantities that Predictor predicts with the fitted models. For sources; no other folder
// includes it. Pure; any thread.

#include <functional>
#include <vector>

#include "planner/models/fitted.hpp"
#include "planner/predict/query.hpp"

namespace mayfly::planner {

/// A quantity that a query can name.
struct Quantity {
  const char* name;
  Result<Forecast> (*predict)(const FittedModels& models, Query& query);
};

[[nodiscard]] const std::vector<Quantity>& all_quantities();

/// The network that the fields model, family, gflops, params, tensors, weights_mb and meta_mb
/// describe, completed.
[[nodiscard]] Network network_in(const FittedModels& models, Query& query);
/// The workers of the fields cluster, or gpu and workers.
[[nodiscard]] std::vector<WorkerGroup> workers_in(Query& query);
/// workers_in() with the fields network, parameter_servers and kind.
[[nodiscard]] Cluster cluster_in(const FittedModels& models, Query& query);

/// cluster_in() for a job: `kind` is "whole job" unless given.
[[nodiscard]] Cluster job_cluster_in(const FittedModels& models, Query& query);

/// Whether the query has `"losses": "simulated"`: the losses of the job are drawn, not given.
[[nodiscard]] bool has_simulated_losses(Query& query);
/// One number of each simulated path of the job that the fields describe (simulated_job.cpp).
enum class PathQuantity { kDuration, kCost, kLosses };
[[nodiscard]] Result<Forecast> simulated_job(const FittedModels& models, Query& query,
                                             PathQuantity quantity);
/// The steps of the job: the field, or, for the network of training_jobs.csv, the steps of those
/// jobs.
[[nodiscard]] std::optional<double> steps_in(const FittedModels& models, const Network& network,
                                             Query& query);

// speed_quantities.cpp
Result<Forecast> predict_step_time(const FittedModels& models, Query& query);
Result<Forecast> predict_cluster_speed(const FittedModels& models, Query& query);
Result<Forecast> predict_job_duration(const FittedModels& models, Query& query);
Result<Forecast> predict_job_cost(const FittedModels& models, Query& query);
Result<Forecast> predict_job_losses(const FittedModels& models, Query& query);

// server_quantities.cpp
Result<Forecast> predict_checkpoint_time(const FittedModels& models, Query& query);
Result<Forecast> predict_checkpoint_local_time(const FittedModels& models, Query& query);
Result<Forecast> predict_startup_time(const FittedModels& models, Query& query);
Result<Forecast> predict_join_time(const FittedModels& models, Query& query);
Result<Forecast> predict_recovery_time(const FittedModels& models, Query& query);
Result<Forecast> predict_chief_loss(const FittedModels& models, Query& query);
Result<Forecast> predict_remaining_time(const FittedModels& models, Query& query);
Result<Forecast> predict_revoked_share(const FittedModels& models, Query& query);
Result<Forecast> predict_lifetime(const FittedModels& models, Query& query);
Result<Forecast> predict_hour_of_day_factor(const FittedModels& models, Query& query);
Result<Forecast> predict_losses_together(const FittedModels& models, Query& query);
Result<Forecast> predict_shocks_per_hour(const FittedModels& models, Query& query);
Result<Forecast> predict_shock_share(const FittedModels& models, Query& query);
Result<Forecast> predict_accuracy(const FittedModels& models, Query& query);
Result<Forecast> predict_switch_time(const FittedModels& models, Query& query);
Result<Forecast> predict_divergence(const FittedModels& models, Query& query);

}  // namespace mayfly::planner
