#include "planner/models/startup.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/parse.hpp"
#include "base/statistics.hpp"
#include "planner/fit.hpp"

namespace mayfly::planner {
namespace {

constexpr double kBatchSpreadBefore = 0.08;
constexpr double kBatchesBefore = 3;
constexpr double kStartDegrees = 6;
constexpr double kBetweenDays = 0.03;
constexpr double kUnknownSd = 0.1;
constexpr double kStartLeast = 1e-3;         // seconds: a start that took no time has a logarithm
constexpr double kSpreadOfRecoveries = 0.5;  // relative, if only one was seen
constexpr std::string_view kStepsIn = " steps in ";
constexpr double kErrorOfTwo = 0.2;

/// The number before a word, such as 1500 before " steps after" in a text.
std::optional<double> number_before(std::string_view text, std::string_view word) {
  const std::size_t end = text.find(word);
  if (end == std::string::npos) {
    return std::nullopt;
  }
  const std::size_t begin = text.find_last_not_of("0123456789.", end - (end > 0 ? 1 : 0));
  const std::size_t first = begin == std::string::npos ? 0 : begin + 1;
  return number_in<double>(text.substr(first, end - first));
}

double stage_of(const StartupRow& row, const std::string& stage) {
  return stage == "provision" ? row.provision_s
         : stage == "staging" ? row.staging_s
         : stage == "booting" ? row.booting_s
                              : row.provision_s + row.staging_s + row.booting_s;
}

/// A line y = a + b x by plain least squares; with one x, a constant.
struct Line {
  double offset = 0, slope = 0;
  double error = 0;  ///< root mean square with the degrees of freedom left; 0 if there are none
  double spread_x = 0, mean_x = 0;
  std::size_t count = 0;

  [[nodiscard]] double at(double x) const { return offset + slope * x; }
};

Line line_through(const Numbers& xs, const Numbers& ys) {
  Line line;
  line.count = xs.size();
  line.mean_x = mean_of(xs);
  double xy = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    line.spread_x += (xs[i] - line.mean_x) * (xs[i] - line.mean_x);
    xy += (xs[i] - line.mean_x) * ys[i];
  }
  line.slope = line.spread_x > 0 ? xy / line.spread_x : 0;
  line.offset = mean_of(ys) - line.slope * line.mean_x;
  double squares = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    squares += std::pow(ys[i] - line.at(xs[i]), 2);
  }
  line.error = xs.size() > 2 ? std::sqrt(squares / static_cast<double>(xs.size() - 2)) : 0;
  return line;
}

}  // namespace

Startups::Startups(const Calibration& calibration) : starts_(calibration.startups) {
  std::map<std::string, Numbers> singles;
  Numbers means;
  for (const StartupRow& row : starts_) {
    singles[row.market_class + " " + row.gpu].push_back(stage_of(row, ""));
  }
  for (const auto& [name, values] : singles) {
    means.push_back(std::log(std::max(mean_of(values), kStartLeast)));
  }
  for (const ReplacementRow& row : calibration.replacements) {
    if (row.what.starts_with("start-up")) {
      batches_.push_back(row);
      means.push_back(std::log(std::max(row.mean_s, kStartLeast)));
    }
  }
  const double degrees = means.empty() ? 0 : static_cast<double>(means.size() - 1);
  batch_spread_ = std::sqrt((kBatchesBefore * kBatchSpreadBefore * kBatchSpreadBefore +
                             degrees * std::pow(deviation_of(means), 2)) /
                            (kBatchesBefore + degrees));
}

Result<Forecast> Startups::asked_start(const std::string& gpu, const std::string& asked) const {
  Numbers means, spreads;
  for (const bool is_any : {false, true}) {
    for (const ReplacementRow& row : batches_) {
      if ((is_any || row.item == gpu) && row.what.find(asked) != std::string::npos) {
        means.push_back(row.mean_s);
        spreads.push_back(row.mean_s > 0 && row.sd_s ? *row.sd_s / row.mean_s : kUnknownSd);
      }
    }
    if (!means.empty()) {
      const double sd =
          std::hypot(root_mean_square(spreads), is_any ? batch_spread_ : kBetweenDays);
      return relative_forecast(
          mean_of(means), sd, kStartDegrees,
          {"s", "start-ups of replacement.csv: " + std::to_string(means.size()) +
                    (is_any ? ", of other machine types" : "")});
    }
  }
  return Error{Errc::kNotFound, "replacement.csv has no start-up asked '" + asked + "'"};
}

Result<Forecast> Startups::start(const std::string& gpu, const std::string& market_class,
                                 const std::string& asked, const std::string& stage) const {
  const auto find = [&](bool is_any_gpu, bool is_any_class) {
    Numbers found;
    for (const StartupRow& row : starts_) {
      if ((is_any_gpu || row.gpu == gpu) && (is_any_class || row.market_class == market_class)) {
        found.push_back(stage_of(row, stage));
      }
    }
    return found;
  };
  if (!asked.empty()) {
    return asked_start(gpu, asked);
  }
  for (const bool is_any_class : {false, true}) {
    for (const bool is_any_gpu : {false, true}) {
      const Numbers found = find(is_any_gpu, is_any_class);
      if (found.empty()) {
        continue;
      }
      // Each start counts as if it had been on a slower and on a faster day.
      Numbers values;
      for (const double value : found) {
        for (const double shift : {-1.2, 0.0, 1.2}) {
          values.push_back(value * std::exp(shift * batch_spread_));
        }
      }
      Forecast forecast =
          sampled_forecast(values, {"s", std::to_string(found.size()) + " starts of " +
                                             (is_any_gpu ? "all machine types" : gpu) +
                                             (is_any_class ? " of other classes" : "")});
      forecast.mean = mean_of(found);
      return forecast;
    }
  }
  return asked_start(gpu, "");
}

Result<Forecast> join_time(const Calibration& calibration, const Networks& networks,
                           const Network& network, const std::string& where) {
  Numbers tensors, seconds;
  double spread = 0;
  for (const ReplacementRow& row : calibration.replacements) {
    const Network joined = networks.completed({row.item, "", {}, {}, {}, {}, {}});
    if (row.what == "join, " + where && joined.tensors) {
      tensors.push_back(*joined.tensors);
      seconds.push_back(row.mean_s);
      spread = std::max(spread, row.sd_s.value_or(0));
    }
  }
  if (seconds.empty()) {
    return Error{Errc::kNotFound, "replacement.csv has no 'join, " + where +
                                      "' of a network whose tensors are known"};
  }
  if (!network.tensors) {
    return Error{Errc::kNotFound, "joining needs the network's tensors"};
  }
  const Line line = line_through(tensors, seconds);
  const double median =
      std::max(line.at(*network.tensors), *std::min_element(seconds.begin(), seconds.end()) / 2);
  const double sd = std::hypot(spread, std::hypot(line.error, kBetweenDays * median));
  return absolute_forecast(median, sd, 3, 0, 1e9,
                           {"s", std::to_string(seconds.size()) + " joins, by tensors"});
}

Result<Forecast> recovery_time(const Calibration& calibration, const std::string& model,
                               const std::string& cause) {
  for (const bool is_any : {false, true}) {
    Numbers means, spreads;
    for (const ReplacementRow& row : calibration.replacements) {
      if (row.what == "recovery, " + cause && row.mean_s > 0 && (is_any || row.item == model)) {
        means.push_back(row.mean_s);
        spreads.push_back(row.sd_s.value_or(kSpreadOfRecoveries * row.mean_s) / row.mean_s);
      }
    }
    if (!means.empty()) {
      return relative_forecast(
          mean_of(means), std::hypot(root_mean_square(spreads), is_any ? kUnknownSd : 0), 3,
          {"s", "recoveries of replacement.csv: " + std::to_string(means.size()) +
                    (is_any ? ", of other networks" : "")});
    }
  }
  return Error{Errc::kNotFound, "replacement.csv has no 'recovery, " + cause + "'"};
}

Result<Forecast> chief_loss(const Calibration& calibration, double steps, double steps_per_s) {
  Numbers xs, ys;  // steps, and lost seconds at one step per second
  for (const ReplacementRow& row : calibration.replacements) {
    const auto since = number_before(row.what, " steps after a checkpoint");
    const auto of_item = number_before(row.item, kStepsIn);
    const std::size_t at = row.item.find(kStepsIn);
    const std::string rest = at == std::string::npos ? "" : row.item.substr(at + kStepsIn.size());
    const double seconds = number_before(rest, " s").value_or(0);
    if (since && of_item && seconds > 0) {
      xs.push_back(*since);
      ys.push_back(row.mean_s * *of_item / seconds);
    }
  }
  if (xs.size() < 2) {
    return Error{Errc::kNotFound, "replacement.csv has less than two losses of a chief"};
  }
  const Line line = line_through(xs, ys);
  const double median = std::max(line.at(steps), 0.0) / steps_per_s;
  // Two losses do not show the error of the line through them.
  const double error = xs.size() > 2 ? line.error : kErrorOfTwo * mean_of(ys);
  const double sd = std::hypot(std::max(error / steps_per_s, 3.0), 0.05 * median);
  return absolute_forecast(median, sd, 3, 0, 1e9,
                           {"s", std::to_string(xs.size()) + " losses of a chief"});
}

Result<Forecast> remaining_time(const Calibration& calibration, double step) {
  Numbers steps, seconds;
  for (const RemainingTimeRow& row : calibration.remaining_times) {
    steps.push_back(row.step_of_revocation);
    seconds.push_back(row.actual_s);
  }
  if (seconds.size() < 2) {
    return Error{Errc::kNotFound, "remaining_time.csv has less than two rows"};
  }
  const Line line = line_through(steps, seconds);
  const double median = std::max(line.at(step), 0.0);
  return absolute_forecast(median, std::hypot(std::max(line.error, 2.0), 0.005 * median), 3, 0, 1e9,
                           {"s", std::to_string(seconds.size()) + " losses at known steps"});
}

double remaining_time_constant(const Calibration& calibration) {
  Numbers beyond;
  for (const RemainingTimeRow& row : calibration.remaining_times) {
    if (row.estimated_s) {
      beyond.push_back(row.actual_s - *row.estimated_s);
    }
  }
  return mean_of(beyond);
}

}  // namespace mayfly::planner
