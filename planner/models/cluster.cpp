// Parses the names of clusters in tables and queries, and finds the size of their jobs: the part of
// cluster_speed.hpp without a fit.

#include "base/parse.hpp"
#include "base/statistics.hpp"
#include "planner/models/cluster_speed.hpp"

namespace mayfly::planner {

Result<std::vector<WorkerGroup>> parse_cluster(const std::string& text) {
  std::vector<WorkerGroup> groups;
  for (const std::string_view part : split(cut(text, ' ').first, '+')) {
    const auto [count, gpu] = cut(part, 'x');
    const auto workers = number_in<int>(count, 1, 1'000'000);
    if (!workers || gpu.empty()) {
      return Error{Errc::kInvalidInput, "cluster '" + text + "' is not written like 2xK80+1xV100"};
    }
    groups.push_back({std::string(gpu), static_cast<double>(*workers), 0});
  }
  if (groups.empty()) {
    return Error{Errc::kInvalidInput, "the cluster has no workers"};
  }
  return groups;
}

std::optional<JobSize> job_size(const Calibration& calibration) {
  std::vector<double> steps;
  std::string model;
  for (const TrainingJobRow& job : calibration.training_jobs) {
    const auto groups = parse_cluster(job.cluster);
    if (!groups.ok() || groups.value().size() != 1) {
      continue;
    }
    for (const ClusterSpeedRow& row : calibration.cluster_speeds) {
      if (row.kind == kWholeJob && row.gpu == groups.value()[0].gpu && row.workers == job.workers &&
          row.parameter_servers == job.parameter_servers) {
        steps.push_back(row.steps_per_s * job.duration_s);
        model = row.model;
      }
    }
  }
  return steps.empty() ? std::nullopt : std::optional(JobSize{median(steps), model});
}

}  // namespace mayfly::planner
