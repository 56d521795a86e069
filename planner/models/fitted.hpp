#pragma once

// All models of one calibration. Immutable; any thread.

#include <optional>
#include <utility>

#include "planner/billing.hpp"
#include "planner/models/checkpoint.hpp"
#include "planner/models/cluster_speed.hpp"
#include "planner/models/lifetime.hpp"
#include "planner/models/networks.hpp"
#include "planner/models/regions.hpp"
#include "planner/models/startup.hpp"
#include "planner/models/step_time.hpp"

namespace mayfly::planner {

struct FittedModels {
  /// Fits all of them. The models refer to each other: not copied.
  explicit FittedModels(Calibration measured)
      : calibration(std::move(measured)),
        networks(calibration),
        step_times(calibration),
        cluster_speeds(calibration, step_times, networks),
        distant_workers(calibration, step_times, cluster_speeds, networks),
        prices(calibration),
        size(job_size(calibration)),
        checkpoints(calibration, networks),
        startups(calibration),
        lifetimes(calibration) {}
  FittedModels(const FittedModels&) = delete;
  FittedModels& operator=(const FittedModels&) = delete;

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

}  // namespace mayfly::planner
