#pragma once

// The fitted models behind Predictor, and the quantities that they answer. For sources; no other
// folder includes it. Pure; any thread.

#include <functional>
#include <vector>

#include "planner/billing.hpp"
#include "planner/models/cluster_speed.hpp"
#include "planner/models/networks.hpp"
#include "planner/models/step_time.hpp"
#include "planner/predict/predictor.hpp"
#include "planner/predict/query.hpp"

namespace mayfly::planner {

struct Predictor::Models {
  explicit Models(const Calibration& calibration)
      : networks(calibration),
        step_times(calibration),
        cluster_speeds(calibration, step_times, networks),
        prices(calibration),
        size(job_size(calibration)) {}

  Networks networks;
  StepTimes step_times;
  ClusterSpeeds cluster_speeds;
  Prices prices;
  std::optional<JobSize> size;
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

}  // namespace mayfly::planner
