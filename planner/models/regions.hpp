#pragma once

// Workers in other regions than their parameter servers. Pure; any thread.

#include <string>
#include <vector>

#include "planner/models/cluster_speed.hpp"

namespace mayfly::planner {

/// The time that a distant parameter server adds to each step of a worker. It is fitted to the
/// splits in cross_region_*.csv; for other machine types and networks it is scaled with the cost of
/// latency (StepTimes::latency_cost). The published tables only list whole clusters.
class DistantWorkers {
 public:
  DistantWorkers(const Calibration& calibration, const StepTimes& step_times,
                 const ClusterSpeeds& speeds, const Networks& networks);

  /// The cluster with `split` of its workers over regions ("2+1+1", the first with the parameter
  /// servers). kInvalidInput if the split does not add up, kNotFound without measurements.
  [[nodiscard]] Result<Forecast> speed(const Cluster& cluster, const std::string& split) const;

 private:
  struct Split {
    std::string gpu;
    double near = 0, far = 0, regions = 0;
    double further_s = 0;  ///< of each step of a distant worker
  };
  [[nodiscard]] Result<double> further_s(const std::string& gpu, const Network& network, double far,
                                         double regions) const;

  const StepTimes& step_times_;
  const ClusterSpeeds& speeds_;
  std::optional<Network> network_;  ///< of the measured splits
  std::vector<Split> splits_;
};

}  // namespace mayfly::planner
