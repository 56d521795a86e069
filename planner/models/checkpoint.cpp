#include "planner/models/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/statistics.hpp"
#include "base/try_assign.hpp"

namespace mayfly::planner {
namespace {

/// Storage differs by some percent between days; no table has repetitions of it.
constexpr double kStorageDaySpread = 0.06;
constexpr double kLeastFitError = 0.02;

}  // namespace

CheckpointTimes::CheckpointTimes(const Calibration& calibration, const Networks& networks) {
  std::map<std::string, Numbers> stored, local;
  for (const CheckpointRow& row : calibration.checkpoints) {
    stored[row.model].push_back(row.duration_s);
    if (row.local_s && *row.local_s > 0) {
      local[row.model].push_back(*row.local_s);
    }
  }
  const auto add = [](Means& means, const std::string& model, const Numbers& values,
                      Numbers features) {
    means.models.push_back(model);
    means.features.push_back(std::move(features));
    means.seconds.push_back(mean_of(values));
    means.run_spread = std::max(means.run_spread, deviation_of(values) / mean_of(values));
  };
  for (const auto& [model, values] : stored) {
    const Network network = networks.completed({model, "", {}, {}, {}, {}, {}});
    add(plain_, model, values, {1, *network.weights_mb});
    if (network.meta_mb) {
      add(with_meta_, model, values, {1, *network.weights_mb, *network.meta_mb});
    }
    const auto of_local = local.find(model);
    if (of_local != local.end() && network.tensors) {
      add(local_, model, of_local->second, {1, *network.tensors});
    }
  }
}

Result<Forecast> CheckpointTimes::predict(const Means& means, const Numbers& features,
                                          const std::string& model, const char* what) const {
  const auto same = std::find(means.models.begin(), means.models.end(), model);
  double median = 0;
  double error = 0;
  std::string because;
  if (same != means.models.end()) {
    median = means.seconds[static_cast<std::size_t>(same - means.models.begin())];
    because = "measured checkpoints of " + model;
  } else {
    const Numbers errors = leave_one_out(means.features, means.seconds);
    median = dot(features, relative_fit(means.features, means.seconds));
    median = std::max(median, *std::min_element(means.seconds.begin(), means.seconds.end()) / 2);
    error = errors.empty() ? 0.3 : std::max(root_mean_square(errors), kLeastFitError);
    because = "checkpoints of " + std::to_string(means.models.size()) + " networks, by " + what;
  }
  const double sd = std::hypot(error, std::hypot(means.run_spread, kStorageDaySpread));
  return relative_forecast(median, sd,
                           std::max<double>(2, static_cast<double>(means.models.size()) - 2),
                           {"s", because});
}

Result<Forecast> CheckpointTimes::stored(const Network& network) const {
  if (plain_.models.empty() || !network.weights_mb) {
    return Error{Errc::kNotFound,
                 "a checkpoint's time needs rows of checkpoint.csv and weights_mb"};
  }
  const double plain_error = root_mean_square(leave_one_out(plain_.features, plain_.seconds));
  const Numbers errors = with_meta_.models.size() == plain_.models.size()
                             ? leave_one_out(with_meta_.features, with_meta_.seconds)
                             : Numbers{};
  if (network.meta_mb && errors.size() > 4 && root_mean_square(errors) < plain_error) {
    return predict(with_meta_, {1, *network.weights_mb, *network.meta_mb}, network.model,
                   "MB of weights and of metadata");
  }
  return predict(plain_, {1, *network.weights_mb}, network.model, "MB of weights");
}

Result<Forecast> CheckpointTimes::local(const Network& network) const {
  if (local_.models.empty() || !network.tensors) {
    return Error{Errc::kNotFound, "it needs rows of checkpoint.csv with local_s, and tensors"};
  }
  return predict(local_, {1, *network.tensors}, network.model, "tensors");
}

}  // namespace mayfly::planner
