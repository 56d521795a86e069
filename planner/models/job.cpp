#include "planner/models/job.hpp"

#include <algorithm>
#include <cmath>

#include "base/try_assign.hpp"

namespace mayfly::planner {
namespace {

struct Change {
  double at_s;
  std::size_t group;
  double workers;  ///< negative for a loss
};

/// The spread of runs of one cluster on one day; that of days is in the speed's forecast.
constexpr double kRunSpread = 0.01;
constexpr double kSpeedDegrees = 8;

}  // namespace

Result<std::vector<GroupLoss>> losses_of_groups(const std::vector<WorkerGroup>& workers,
                                                std::vector<Loss> losses) {
  std::ranges::stable_sort(losses, {}, &Loss::at_s);
  std::vector<GroupLoss> found;
  for (const Loss& loss : losses) {
    double wanted = loss.workers;
    const std::size_t before = found.size();
    for (std::size_t group = 0; group < workers.size() && wanted > 0; ++group) {
      double alive = workers[group].workers;
      for (std::size_t i = 0; i < before; ++i) {
        const bool is_back = found[i].loss.replaced_s && *found[i].loss.replaced_s <= loss.at_s;
        alive -= found[i].group == group && !is_back ? found[i].loss.workers : 0;
      }
      const bool fits = loss.gpu.empty() || loss.gpu == workers[group].gpu;
      if (const double here = fits ? std::min(wanted, alive) : 0; here > 0) {
        found.push_back({group, loss});
        found.back().loss.workers = here;
        wanted -= here;
      }
    }
    if (wanted > 0) {
      return Error{Errc::kInvalidInput, "more workers are lost than the cluster has"};
    }
  }
  return found;
}

Result<Forecast> job_duration(const ClusterSpeeds& speeds, const Cluster& cluster, double steps,
                              const std::vector<Loss>& losses) {
  std::vector<Change> changes;
  TRY_ASSIGN(const std::vector<GroupLoss> of_groups, losses_of_groups(cluster.workers, losses));
  for (const auto& [group, loss] : of_groups) {
    changes.push_back({loss.at_s, group, -loss.workers});
    if (loss.replaced_s) {
      changes.push_back({*loss.replaced_s, group, loss.workers});
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
    now.workers[change.group].workers += change.workers;
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
