#pragma once

// The duration of a job from the speed of its cluster, with known losses of workers. Pure; any
// thread. Survivors continue, so the speed is constant between two changes of the cluster
// (CM-DARE, ICDCS 2020, controller; here without its fixed time of a restart).

#include <optional>
#include <string>
#include <vector>

#include "planner/models/cluster_speed.hpp"

namespace mayfly::planner {

/// Workers that are lost together. Times in seconds since training began.
struct Loss {
  double at_s = 0;
  std::string gpu;
  double workers = 1;
  std::optional<double> replaced_s{};  ///< when replacements of all of them begin to train
};

/// A loss of workers of one group of a cluster, by its place.
struct GroupLoss {
  std::size_t group = 0;
  Loss loss;
};

/// Assigns each loss to groups, in the order of time: to the group of its machine type, or, without
/// a type, to the first groups that have workers then. kInvalidInput if more workers are lost than
/// there are.
[[nodiscard]] Result<std::vector<GroupLoss>> losses_of_groups(
    const std::vector<WorkerGroup>& workers, std::vector<Loss> losses);

/// Seconds from the first step to the last. kInvalidInput if more workers are lost than there are,
/// or if all are lost for good before the end; errors of ClusterSpeeds.
[[nodiscard]] Result<Forecast> job_duration(const ClusterSpeeds& speeds, const Cluster& cluster,
                                            double steps, const std::vector<Loss>& losses);

}  // namespace mayfly::planner
