#pragma once

// The fitted models behind Predictor, and the quantities that they answer. For sources; no other
// folder includes it. Pure; any thread.

#include <functional>
#include <vector>

#include "planner/billing.hpp"
#include "planner/models/checkpoint.hpp"
#include "planner/models/cluster_speed.hpp"
#include "planner/models/lifetime.hpp"
#include "planner/models/networks.hpp"
#include "planner/models/regions.hpp"
#include "planner/models/startup.hpp"
#include "planner/models/step_time.hpp"
#include "planner/predict/predictor.hpp"
#include "planner/predict/query.hpp"

namespace mayfly::planner {

struct Predictor::Models {
  explicit Models(const Calibration& measured)
      : calibration(measured),
        networks(measured),
        step_times(measured),
        cluster_speeds(measured, step_times, networks),
        distant_workers(measured, step_times, cluster_speeds, networks),
        prices(measured),
        size(job_size(measured)),
        checkpoints(measured, networks),
        startups(measured),
        lifetimes(measured) {}

  Calibration calibration;
  Networks networks;
  StepTimes step_times;
  ClusterSpeeds cluster_speeds;
  DistantWorkers distant_workers;
  Prices prices;
  std::optional<JobSize> size;
  CheckpointTimes checkpoints;
  Startups startups;
  Lifetimes lifetimes;
};

/// A quantity that can be asked for.
struct Quantity {
  const char* name;
  Result<Forecast> (*predict)(const Predictor::Models& models, Query& query);
};

[[nodiscard]] const std::vector<Quantity>& all_quantities();

/// The network that the fields model, family, gflops, params, tensors, weights_mb and meta_mb
/// describe, completed.
[[nodiscard]] Network network_in(const Predictor::Models& models, Query& query);
/// The workers of the fields cluster, or gpu and workers.
[[nodiscard]] std::vector<WorkerGroup> workers_in(Query& query);
/// The same with network, parameter_servers and kind.
[[nodiscard]] Cluster cluster_in(const Predictor::Models& models, Query& query);

// speed_quantities.cpp
Result<Forecast> predict_step_time(const Predictor::Models& models, Query& query);
Result<Forecast> predict_cluster_speed(const Predictor::Models& models, Query& query);
Result<Forecast> predict_job_duration(const Predictor::Models& models, Query& query);
Result<Forecast> predict_job_cost(const Predictor::Models& models, Query& query);

// server_quantities.cpp
Result<Forecast> predict_checkpoint_time(const Predictor::Models& models, Query& query);
Result<Forecast> predict_checkpoint_local_time(const Predictor::Models& models, Query& query);
Result<Forecast> predict_startup_time(const Predictor::Models& models, Query& query);
Result<Forecast> predict_join_time(const Predictor::Models& models, Query& query);
Result<Forecast> predict_chief_loss(const Predictor::Models& models, Query& query);
Result<Forecast> predict_remaining_time(const Predictor::Models& models, Query& query);
Result<Forecast> predict_revoked_share(const Predictor::Models& models, Query& query);
Result<Forecast> predict_lifetime(const Predictor::Models& models, Query& query);
Result<Forecast> predict_hour_of_day_factor(const Predictor::Models& models, Query& query);
Result<Forecast> predict_losses_together(const Predictor::Models& models, Query& query);
Result<Forecast> predict_shocks_per_hour(const Predictor::Models& models, Query& query);
Result<Forecast> predict_shock_share(const Predictor::Models& models, Query& query);
Result<Forecast> predict_accuracy(const Predictor::Models& models, Query& query);
Result<Forecast> predict_switch_time(const Predictor::Models& models, Query& query);
Result<Forecast> predict_divergence(const Predictor::Models& models, Query& query);

}  // namespace mayfly::planner
