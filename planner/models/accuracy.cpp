#include "planner/models/accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/parse.hpp"
#include "base/statistics.hpp"
#include "planner/fit.hpp"

namespace mayfly::planner {
namespace {

constexpr double kLeastRunSpread = 0.002;
constexpr double kLevelSpread = 0.004;  // between campaigns of the same job
constexpr double kAccuracyDegrees = 8;
/// A run whose accuracy is this much below the median of its group, or that has done less than half
/// of the steps of the others, has diverged.
constexpr double kDivergedBelow = 0.04;

struct Parts {
  std::string workload;
  double fraction = 0;
};

/// "res32/c10 8w b10-a90" is the workload before the last word, and the fraction 0.1; "6_94" is
/// 0.06; "ASP only" 0, "BSP only" 1.
std::optional<Parts> parts_of(const std::string& group) {
  std::string text = group;
  if (text.ends_with(" only")) {
    text.resize(text.size() - std::string(" only").size());
  }
  const std::size_t space = text.find_last_of(' ');
  std::string policy = space == std::string::npos ? text : text.substr(space + 1);
  std::transform(policy.begin(), policy.end(), policy.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const std::string workload = space == std::string::npos ? "" : text.substr(0, space);
  if (policy == "asp" || policy == "bsp") {
    return Parts{workload, policy == "bsp" ? 1.0 : 0.0};
  }
  const std::string_view digits = std::string_view(policy).substr(policy.starts_with('b') ? 1 : 0);
  const auto percent = number_in<double>(digits.substr(0, digits.find_first_of("-_")), 0, 100);
  return percent ? std::optional(Parts{workload, *percent / 100}) : std::nullopt;
}

/// Whether a linear model of these features determines the value for `wanted`: it is a linear
/// combination of them.
bool follows_from(const std::vector<Numbers>& features, Numbers wanted) {
  constexpr double kRounding = 1e-6;
  std::vector<Numbers> directions;  // of length 1, at right angles
  const auto take_out = [&](Numbers& vector) {
    for (const Numbers& direction : directions) {
      const double along = dot(vector, direction);
      for (std::size_t i = 0; i < vector.size(); ++i) {
        vector[i] -= along * direction[i];
      }
    }
    return std::sqrt(dot(vector, vector));
  };
  for (Numbers feature : features) {
    if (const double length = take_out(feature); length > kRounding) {
      for (double& part : feature) {
        part /= length;
      }
      directions.push_back(std::move(feature));
    }
  }
  return take_out(wanted) <= kRounding;
}

}  // namespace

Result<Forecast> asynchronous_accuracy(const Calibration& calibration, double workers) {
  Numbers counts, accuracies, runs, spreads;
  for (const TrainingJobRow& row : calibration.training_jobs) {
    if (row.accuracy && row.workers > 0) {
      counts.push_back(row.workers);
      accuracies.push_back(*row.accuracy);
      runs.push_back(row.runs);
      spreads.push_back(std::max(row.accuracy_sd.value_or(kLeastRunSpread), kLeastRunSpread));
    }
  }
  if (counts.empty()) {
    return Error{Errc::kNotFound, "training_jobs.csv has no accuracy"};
  }
  // The spread of one run: exp(a + b log(workers)).
  const Posterior spread =
      fit_posterior({{std::log(0.005), 1}, {0.5, 0.5}}, [&](const Numbers& at) {
        Numbers errors;
        for (std::size_t i = 0; i < counts.size(); ++i) {
          errors.push_back((at[0] + at[1] * std::log(counts[i]) - std::log(spreads[i])) *
                           std::sqrt(runs[i] / 2));
        }
        return errors;
      });
  const auto spread_at = [&](double count) {
    return std::exp(spread.mean[0] + spread.mean[1] * std::log(count));
  };
  const Posterior line = fit_posterior({{0.5, 1}, {0, 0.1}}, [&](const Numbers& at) {
    Numbers errors;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const double sd = std::hypot(spread_at(counts[i]) / std::sqrt(runs[i]), kLevelSpread);
      errors.push_back((at[0] + at[1] * (counts[i] - 1) - accuracies[i]) / sd);
    }
    return errors;
  });
  const auto value = [workers](const Numbers& at) { return at[0] + at[1] * (workers - 1); };
  const double sd =
      std::hypot(std::hypot(line.deviation_of(value), kLevelSpread), spread_at(workers));
  return absolute_forecast(
      std::clamp(value(line.mean), 0.0, 1.0), sd, kAccuracyDegrees, 0, 1,
      {"share", std::to_string(counts.size()) + " clusters of training_jobs.csv, by workers"});
}

Result<SwitchRuns> SwitchRuns::of(const Calibration& calibration, const std::string& workload) {
  SwitchRuns found;
  std::map<double, std::vector<SwitchRunRow>> groups;
  for (const SwitchRunRow& row : calibration.switch_runs) {
    const std::optional<Parts> parts = parts_of(row.group);
    if (parts && (parts->workload == workload || workload.empty()) &&
        (found.workload_.empty() || parts->workload == found.workload_)) {
      found.workload_ = parts->workload;
      groups[parts->fraction].push_back(row);
    }
  }
  if (groups.empty()) {
    return Error{Errc::kNotFound, "switch_runs.csv has no runs of '" + workload + "'"};
  }
  for (const auto& [fraction, rows] : groups) {
    Point point{fraction, {}};
    std::vector<double> accuracies, steps;
    for (const SwitchRunRow& row : rows) {
      accuracies.push_back(row.final_accuracy);
      steps.push_back(row.last_step.value_or(0));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      point.runs.push_back({rows[i].final_accuracy, rows[i].time_s,
                            rows[i].final_accuracy < median(accuracies) - kDivergedBelow ||
                                steps[i] < median(steps) / 2});
    }
    found.points_.push_back(std::move(point));
  }
  return found;
}

Forecast SwitchRuns::accuracy(double fraction) const {
  Numbers fractions, means;
  double squares = 0;
  double degrees = 0;
  for (const Point& point : points_) {
    Numbers good;
    for (const Run& run : point.runs) {
      if (!run.has_diverged) {
        good.push_back(run.accuracy);
      }
    }
    if (good.empty()) {
      continue;
    }
    fractions.push_back(point.fraction);
    means.push_back(mean_of(good));
    squares += std::pow(deviation_of(good), 2) * (static_cast<double>(good.size()) - 1);
    degrees += static_cast<double>(good.size()) - 1;
  }
  double value = means.empty() ? 0 : means.back();
  for (std::size_t i = 0; i < fractions.size(); ++i) {
    if (fraction <= fractions[i]) {
      const double span = i == 0 ? 0 : fractions[i] - fractions[i - 1];
      const double share = span <= 0 ? 1 : (fraction - fractions[i - 1]) / span;
      value = i == 0 ? means[0] : means[i - 1] + share * (means[i] - means[i - 1]);
      break;
    }
  }
  const double run = degrees > 0 ? std::sqrt(squares / degrees) : kDivergedBelow / 4;
  return absolute_forecast(
      value, std::hypot(run, kLevelSpread), kAccuracyDegrees, 0, 1,
      {"share", std::to_string(fractions.size()) + " measured fractions of '" + workload_ + "'"});
}

Result<Forecast> SwitchRuns::time(double fraction) const {
  const auto parts_of = [](double of) { return Numbers{of, 1 - of, of > 0 && of < 1 ? 1.0 : 0.0}; };
  Numbers logs;
  std::vector<Numbers> features;
  Numbers times;
  for (const Point& point : points_) {
    for (const Run& run : point.runs) {
      if (!run.has_diverged) {
        features.push_back(parts_of(point.fraction));
        times.push_back(run.time_s);
      }
    }
  }
  if (points_.size() < 2 || times.size() < 3) {
    return Error{Errc::kNotFound, "the time of a switch needs runs at two fractions"};
  }
  if (!follows_from(features, parts_of(fraction))) {
    return Error{
        Errc::kNotFound,
        "the runs of '" + workload_ +
            "' do not determine the time at this fraction: it needs runs at the fractions 0 "
            "and 1, or at one of them and two others"};
  }
  const Numbers fit = relative_fit(features, times);
  for (std::size_t i = 0; i < times.size(); ++i) {
    logs.push_back(times[i] / std::max(dot(features[i], fit), 1e-9) - 1);
  }
  // Single runs that had to wait are much slower, so the median of the errors is the spread.
  Numbers sizes;
  for (const double error : logs) {
    sizes.push_back(std::abs(error));
  }
  const double spread = std::max(1.48 * median(sizes), 0.015);
  const double value = dot(parts_of(fraction), fit);
  return relative_forecast(std::max(value, 1e-9), spread, 4,
                           {"s", std::to_string(times.size()) + " runs of '" + workload_ + "'"});
}

Forecast SwitchRuns::divergence(double fraction) const {
  double diverged = 0;
  double runs = 0;
  for (const Point& point : points_) {
    const bool is_same = std::abs(point.fraction - fraction) < 1e-9;
    // A later switch diverges no more often than an earlier one.
    if (is_same || (point.fraction > 0 && fraction >= point.fraction)) {
      for (const Run& run : point.runs) {
        runs += 1;
        diverged += run.has_diverged ? 1 : 0;
      }
    }
  }
  const double share = (diverged + 0.5) / (runs + 1);
  const double sd = std::sqrt(share * (1 - share) / (runs + 2));
  return absolute_forecast(share, sd, kAccuracyDegrees, 0, 1,
                           {"share", std::to_string(std::lround(diverged)) + " of " +
                                         std::to_string(std::lround(runs)) + " runs diverged"});
}

}  // namespace mayfly::planner
