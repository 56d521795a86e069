#include "planner/models/regions.hpp"

#include <cmath>

#include "base/parse.hpp"
#include "base/try_assign.hpp"

namespace mayfly::planner {
namespace {

constexpr double kPlaceholderMs = 30;  // only ratios of costs at one latency are used
constexpr double kSplitError = 0.06;   // of a whole cluster's speed, between pairs of regions

struct RegionCounts {
  double near = 0, far = 0, regions = 0;
};

std::optional<RegionCounts> counts_of(const std::string& split_text) {
  RegionCounts counts;
  for (const std::string_view part : split(split_text, '+')) {
    const auto workers = number_in<int>(part, 0, 1'000'000);
    if (!workers) {
      return std::nullopt;
    }
    (counts.regions == 0 ? counts.near : counts.far) += *workers;
    counts.regions += 1;
  }
  return counts.regions > 0 ? std::optional(counts) : std::nullopt;
}

}  // namespace

DistantWorkers::DistantWorkers(const Calibration& calibration, const StepTimes& step_times,
                               const ClusterSpeeds& speeds, const Networks& networks)
    : step_times_(step_times), speeds_(speeds) {
  const std::optional<JobSize> size = job_size(calibration);
  if (!size) {
    return;
  }
  network_ = networks.completed({size->model, "", {}, {}, {}, {}, {}});
  for (const CrossRegionRow& row : calibration.cross_region) {
    const std::optional<RegionCounts> counts = counts_of(row.split);
    if (!counts || counts->far <= 0) {
      continue;
    }
    // The time per step of a distant worker with which the model has the measured speed.
    const auto speed_with = [&](double further) {
      const Cluster cluster{
          {{row.gpu, counts->near, 0}, {row.gpu, counts->far, further}}, *network_, 1, kWholeJob};
      const Result<Forecast> speed = speeds.speed(cluster);
      return speed.ok() ? speed.value().summary().median : 0.0;
    };
    double least = 0;
    double most = 100;
    for (int i = 0; i < 40; ++i) {
      const double middle = (least + most) / 2;
      (speed_with(middle) > row.steps_per_s ? least : most) = middle;
    }
    if (speed_with(0) > 0) {
      splits_.push_back({row.gpu, counts->near, counts->far, counts->regions, least});
    }
  }
}

Result<double> DistantWorkers::further_s(const std::string& gpu, const Network& network, double far,
                                         double regions) const {
  if (splits_.empty()) {
    return Error{Errc::kNotFound,
                 "no split over regions was measured, or its job's size is unknown"};
  }
  double weights = 0;
  double sum = 0;
  for (const Split& known : splits_) {
    const double apart = std::abs(far - known.far) + std::abs(regions - known.regions) + 0.1;
    double ratio = 1;
    const auto here = step_times_.latency_cost(gpu, network, kPlaceholderMs);
    const auto there = step_times_.latency_cost(known.gpu, *network_, kPlaceholderMs);
    if (here.ok() && there.ok()) {
      ratio = here.value().summary().median / there.value().summary().median;
    }
    weights += 1 / (apart * apart);
    sum += ratio * known.further_s / (apart * apart);
  }
  return sum / weights;
}

Result<Forecast> DistantWorkers::speed(const Cluster& cluster, const std::string& split) const {
  const std::optional<RegionCounts> counts = counts_of(split);
  double workers = 0;
  for (const WorkerGroup& group : cluster.workers) {
    workers += group.workers;
  }
  if (!counts || counts->near + counts->far != workers || cluster.workers.size() != 1) {
    return Error{Errc::kInvalidInput, "the split '" + split + "' is not one of " +
                                          std::to_string(std::lround(workers)) +
                                          " workers of one machine type, such as 3+1"};
  }
  Cluster divided = cluster;
  divided.workers[0].workers = counts->near;
  if (counts->far > 0) {
    TRY_ASSIGN(const double further,
               further_s(cluster.workers[0].gpu, cluster.network, counts->far, counts->regions));
    divided.workers.push_back({cluster.workers[0].gpu, counts->far, further});
  }
  TRY_ASSIGN(const Forecast speed, speeds_.speed(divided));
  const Estimate estimate = speed.summary();
  const double sd = std::log(estimate.high / estimate.low) / 2 / student_quantile(0.95, 8);
  return relative_forecast(
      estimate.median, counts->far > 0 ? std::hypot(sd, kSplitError) : sd, 8,
      {"steps/s", estimate.because + "; " + std::to_string(splits_.size()) + " measured splits"});
}

}  // namespace mayfly::planner
