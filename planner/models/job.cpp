#include "planner/models/job.hpp"

#include <algorithm>
#include <cmath>

#include "base/try_assign.hpp"

namespace mayfly::planner {
namespace {

struct Change {
  double at_s;
  std::string gpu;
  double workers;  ///< negative for a loss
};

/// The spread of runs of one cluster on one day; that of days is in the speed's forecast.
constexpr double kRunSpread = 0.01;
constexpr double kSpeedDegrees = 8;

Result<void> apply(const Change& change, std::vector<WorkerGroup>& groups) {
  const auto group = std::find_if(groups.begin(), groups.end(), [&](const WorkerGroup& g) {
    return change.gpu.empty() || g.gpu == change.gpu;
  });
  if (group == groups.end() || group->workers + change.workers < 0) {
    return Error{Errc::kInvalidInput, "more workers are lost than the cluster has"};
  }
  group->workers += change.workers;
  return {};
}

}  // namespace

Result<Forecast> job_duration(const ClusterSpeeds& speeds, const Cluster& cluster, double steps,
                              const std::vector<Loss>& losses) {
  std::vector<Change> changes;
  for (const Loss& loss : losses) {
    changes.push_back({loss.at_s, loss.gpu, -loss.workers});
    if (loss.replaced_s) {
      changes.push_back({*loss.replaced_s, loss.gpu, loss.workers});
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.at_s < b.at_s; });
  TRY_ASSIGN(const Forecast first, speeds.speed(cluster));
  Cluster now = cluster;
  double done = 0;
  double time_s = 0;
  double speed = first.summary().median;
  for (const Change& change : changes) {
    const double until_s = std::max(change.at_s, time_s);
    if (done + (until_s - time_s) * speed >= steps) {
      break;
    }
    done += (until_s - time_s) * speed;
    time_s = until_s;
    TRY(apply(change, now.workers));
    TRY_ASSIGN(const Forecast next, speeds.speed(now));
    speed = next.summary().median;
  }
  if (speed <= 0) {
    return Error{Errc::kInvalidInput, "no worker is left before the job is done"};
  }
  time_s += (steps - done) / speed;
  const Estimate single = first.summary();
  const double sd = std::log(single.high / single.low) / 2 / student_quantile(0.95, kSpeedDegrees);
  return relative_forecast(time_s, std::hypot(sd, kRunSpread), kSpeedDegrees,
                           {"s", single.because + (losses.empty() ? "" : "; given losses")});
}

}  // namespace mayfly::planner
