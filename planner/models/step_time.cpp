#include "planner/models/step_time.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "base/statistics.hpp"
#include "base/try_assign.hpp"
#include "planner/fit.hpp"

namespace mayfly::planner {
namespace {

/// Assumed difference between days, which counts like kDaysBefore repetitions. Campaigns of one
/// laboratory on one cloud differ by 3 to 12 %.
constexpr double kDaySpreadBefore = 0.035;
constexpr double kDaysBefore = 6;
/// Assumed errors where too few points are left to measure them.
constexpr double kErrorOfOnePoint = 0.10;
constexpr double kErrorOfScaleAndOffset = 0.08;
constexpr double kErrorOfOtherFamily = 0.30;
/// Added to the error for each factor of e beyond the measured range.
constexpr double kErrorOutside = 0.10;
/// The least error: one that is measured on a few points may be smaller by chance.
constexpr double kLeastError = 0.012;
constexpr double kErrorOfLatency = 0.25;
constexpr double kUnknownLatency = 1.5;  // standard deviation of a logarithm before measurements
constexpr double kTypesApart = 0.15;     // of the factor of a machine type on the cost of latency
constexpr double kSlackLatencyMs = 1;
constexpr std::size_t kOverlapLeast = 5;  // measurements of a family, on all machine types

double log_mean(const Numbers& values) {
  Numbers logs;
  for (const double value : values) {
    logs.push_back(std::log(value));
  }
  return std::exp(mean_of(logs));
}

/// The weight of a prediction whose error was measured by leaving out each of `count` points: its
/// likelihood.
double weight_of(double error, std::size_t count) {
  return std::pow(std::max(error, kLeastError), -static_cast<double>(count));
}

std::string count_of(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

StepTimes::StepTimes(const Calibration& calibration) : StepTimes(calibration, true) {}

StepTimes::StepTimes(const Calibration& calibration, bool may_overlap) {
  base_latency_ms_ = calibration.step_times.empty() ? 0 : std::numeric_limits<double>::max();
  for (const StepTimeRow& row : calibration.step_times) {
    base_latency_ms_ = std::min(base_latency_ms_, row.network_latency_ms);
  }
  for (const StepTimeRow& row : calibration.step_times) {
    if (row.network_latency_ms <= base_latency_ms_ + kSlackLatencyMs) {
      measured_[row.gpu].push_back(row);
    }
  }
  for (const auto& [gpu, rows] : measured_) {
    std::map<std::pair<std::string, std::string>, Numbers> times;
    std::map<std::string, double> gflops, tensors;
    for (const StepTimeRow& row : rows) {
      times[{row.family, row.model}].push_back(row.step_s);
      gflops[row.model] = row.gflops;
      tensors[row.model] = row.tensors.value_or(0);
    }
    for (const auto& [key, values] : times) {
      points_[gpu][key.first].push_back(
          {key.second, gflops[key.second], log_mean(values), tensors[key.second]});
    }
  }
  for (const StepTimeRow& row : calibration.step_times) {
    const double further_ms = row.network_latency_ms - base_latency_ms_;
    const Points& base = points(row.gpu, row.family);
    const auto same = std::find_if(base.begin(), base.end(), [&row](const StepPoint& point) {
      return point.model == row.model;
    });
    if (further_ms > kSlackLatencyMs && same != base.end() && row.step_s > same->step_s) {
      latencies_[row.gpu].push_back({row.params, (row.step_s - same->step_s) / further_ms});
    }
  }
  measure_day_spread(calibration);
  choose_forms();
  for (const auto& [family, has_root] : has_root_) {
    if (may_overlap) {
      try_overlap(calibration, family);
    }
  }
}

void StepTimes::measure_day_spread(const Calibration& calibration) {
  std::map<std::pair<std::string, std::string>, Numbers> repeated;
  for (const auto& [gpu, rows] : measured_) {
    for (const StepTimeRow& row : rows) {
      repeated[{gpu, row.model}].push_back(std::log(row.step_s));
    }
  }
  for (const ClusterSpeedRow& row : calibration.cluster_speeds) {
    if (row.workers == 1) {
      repeated[{row.gpu, row.model}].push_back(-std::log(row.steps_per_s));
    }
  }
  double squares = kDaysBefore * kDaySpreadBefore * kDaySpreadBefore;
  double count = kDaysBefore;
  for (const auto& [key, logs] : repeated) {
    const double degrees = static_cast<double>(logs.size()) - 1;
    squares += degrees * deviation_of(logs) * deviation_of(logs);
    count += degrees;
  }
  day_spread_ = std::sqrt(squares / count);
}

void StepTimes::choose_forms() {
  std::set<std::string> families;
  for (const auto& [gpu, by_family] : points_) {
    for (const auto& [family, list] : by_family) {
      families.insert(family);
    }
  }
  for (const std::string& family : families) {
    double gain = 0;  // in logarithm of likelihood, less the price of a coefficient (BIC)
    for (const auto& [gpu, by_family] : points_) {
      Numbers errors[2];
      const Points& list = points(gpu, family);
      for (const bool has_root : {false, true}) {
        std::vector<Numbers> rows;
        Numbers times;
        has_root_[family] = has_root;
        for (const StepPoint& point : list) {
          rows.push_back(features(family, point.gflops));
          times.push_back(point.step_s);
        }
        errors[has_root ? 1 : 0] = times.empty() ? Numbers{} : leave_one_out(rows, times);
      }
      if (!errors[1].empty()) {
        const auto count = static_cast<double>(list.size());
        gain += count * std::log(std::max(root_mean_square(errors[0]), kLeastError) /
                                 std::max(root_mean_square(errors[1]), kLeastError)) -
                std::log(count) / 2;
      }
    }
    has_root_[family] = gain > 0;
  }
}

/// Predicts each network, left out of one machine type, by the lines of the types, chosen without
/// it, and by the overlapped model; the better way is used from then on. The only network of a type
/// cannot be predicted without itself and does not count.
void StepTimes::try_overlap(const Calibration& calibration, const std::string& family) {
  std::vector<FamilyPoint> all;
  std::vector<std::string> models;
  for (const auto& [gpu, by_family] : points_) {
    for (const StepPoint& point : points(gpu, family)) {
      if (point.tensors <= 0 || point.gflops <= 0) {
        return;
      }
      all.push_back({gpu, point.gflops, point.tensors, point.step_s});
      models.push_back(point.model);
    }
  }
  if (all.size() < kOverlapLeast) {
    return;
  }
  const Numbers left_out = leave_one_out(all, day_spread_);
  Numbers of_lines, of_overlap;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::ranges::count(all, all[i].gpu, &FamilyPoint::gpu) < 2) {
      continue;
    }
    Calibration rest;
    rest.cluster_speeds = calibration.cluster_speeds;
    std::ranges::copy_if(
        calibration.step_times, std::back_inserter(rest.step_times),
        [&](const StepTimeRow& row) { return row.gpu != all[i].gpu || row.model != models[i]; });
    const Result<Forecast> line =
        StepTimes(rest, false)
            .step(all[i].gpu, {models[i], family, all[i].gflops, {}, all[i].tensors, {}, {}});
    if (line.ok()) {
      of_lines.push_back(std::log(line.value().quantile(0.5) / all[i].step_s));
      of_overlap.push_back(left_out[i]);
    }
  }
  const auto count = static_cast<double>(of_lines.size());
  const double gain = count * std::log(std::max(root_mean_square(of_lines), kLeastError) /
                                       std::max(root_mean_square(of_overlap), kLeastError));
  if (count > 0 && gain > std::log(count)) {  // the price of its two further coefficients (BIC)
    overlaps_.emplace(family, Overlap{OverlappedSteps(all, day_spread_),
                                      root_mean_square(of_overlap), all.size()});
  }
}

std::optional<StepTimes::Candidate> StepTimes::from_overlap(const std::string& gpu,
                                                            const Network& network) const {
  const auto overlap = overlaps_.find(network.family);
  if (overlap == overlaps_.end() || points(gpu, network.family).empty() || !network.tensors ||
      *network.tensors <= 0 || *network.gflops <= 0) {
    return std::nullopt;
  }
  const FamilyPoint point{gpu, *network.gflops, *network.tensors, 0};
  return Candidate{overlap->second.steps.step_s(point),
                   std::hypot(overlap->second.error, overlap->second.steps.log_sd(point)), 1,
                   std::to_string(overlap->second.networks) + " measurements of " + network.family +
                       " networks: launching and computing overlap"};
}

const StepTimes::Points& StepTimes::points(const std::string& gpu,
                                           const std::string& family) const {
  static const Points kNone;
  const auto of_gpu = points_.find(gpu);
  if (of_gpu == points_.end()) {
    return kNone;
  }
  const auto of_family = of_gpu->second.find(family);
  return of_family == of_gpu->second.end() ? kNone : of_family->second;
}

Numbers StepTimes::features(const std::string& family, double gflops) const {
  const auto root = has_root_.find(family);
  return root != has_root_.end() && root->second ? Numbers{1, gflops, std::sqrt(gflops)}
                                                 : Numbers{1, gflops};
}

std::optional<double> StepTimes::reference(const std::string& gpu, const std::string& family,
                                           const std::string& model, double gflops) const {
  const Points& list = points(gpu, family);
  std::vector<Numbers> rows;
  Numbers times;
  for (const StepPoint& point : list) {
    if (point.model == model) {
      return point.step_s;
    }
    rows.push_back(features(family, point.gflops));
    times.push_back(point.step_s);
  }
  if (times.empty() || times.size() < rows[0].size()) {
    return std::nullopt;
  }
  const double time = dot(features(family, gflops), relative_fit(rows, times));
  return time > 0 ? std::optional(time) : std::nullopt;
}

void StepTimes::add_transfers(const std::string& gpu, const std::string& family,
                              const std::string& model, double gflops,
                              std::vector<Candidate>& candidates) const {
  const Points& own = points(gpu, family);
  for (const auto& [other, by_family] : points_) {
    const std::optional<double> there = reference(other, family, model, gflops);
    if (other == gpu || !there || points(other, family).size() < own.size()) {
      continue;
    }
    std::vector<Numbers> scale, scale_and_offset;
    Numbers times;
    double distance = 0;
    for (const StepPoint& point : own) {
      if (const auto at = reference(other, family, point.model, point.gflops)) {
        scale.push_back({*at});
        scale_and_offset.push_back({1, *at});
        times.push_back(point.step_s);
        distance += std::abs(std::log(point.step_s / *at));
      }
    }
    if (times.empty()) {
      continue;
    }
    const std::string because =
        count_of(times.size(), family + " network") + " on " + gpu + ", shape of " + other;
    if (times.size() >= 3 && features(family, gflops).size() > 2) {
      const double time = dot({1, *there}, relative_fit(scale_and_offset, times));
      if (time > 0) {
        candidates.push_back({time, kErrorOfScaleAndOffset, 1, because});
      }
      continue;
    }
    const double time = dot({*there}, relative_fit(scale, times));
    const Numbers errors = leave_one_out(scale, times);
    const double near = kErrorOfOnePoint + distance / static_cast<double>(times.size());
    const double error = errors.size() < 3 ? std::max(kErrorOfOnePoint, root_mean_square(errors))
                                           : root_mean_square(errors);
    candidates.push_back({time, error,
                          errors.size() < 3 ? 1 / (near * near) : weight_of(error, errors.size()),
                          because});
  }
}

std::vector<StepTimes::Candidate> StepTimes::from_family(const std::string& gpu,
                                                         const std::string& family,
                                                         const std::string& model,
                                                         double gflops) const {
  std::vector<Candidate> candidates;
  const Points& own = points(gpu, family);
  std::vector<Numbers> rows;
  Numbers times;
  for (const StepPoint& point : own) {
    rows.push_back(features(family, point.gflops));
    times.push_back(point.step_s);
  }
  const Numbers errors = times.empty() ? Numbers{} : leave_one_out(rows, times);
  if (errors.size() >= 3 && errors.size() > rows[0].size()) {
    const double time = dot(features(family, gflops), relative_fit(rows, times));
    if (time > 0) {
      candidates.push_back({time, root_mean_square(errors),
                            weight_of(root_mean_square(errors), errors.size()),
                            count_of(errors.size(), family + " network") + " on " + gpu});
    }
  }
  if (rows.empty() || candidates.empty() || rows[0].size() == 2) {
    add_transfers(gpu, family, model, gflops, candidates);
  }
  if (candidates.empty() && !times.empty()) {  // no other type has the shape: a plain line
    const double time = dot(features(family, gflops), relative_fit(rows, times));
    candidates.push_back({std::max(time, times[0] / 100), kErrorOfOtherFamily, 1,
                          count_of(times.size(), family + " network") + " on " + gpu});
  }
  return candidates;
}

std::vector<StepTimes::Candidate> StepTimes::from_other_families(const std::string& gpu,
                                                                 const Network& network) const {
  std::vector<Candidate> candidates;
  const auto of_gpu = points_.find(gpu);
  for (const auto& [other, by_family] : points_) {
    const auto there = reference(other, network.family, network.model, *network.gflops);
    Numbers ratios;
    for (const auto& [family, list] : of_gpu->second) {
      for (const StepPoint& point : list) {
        if (const auto at = reference(other, family, point.model, point.gflops)) {
          ratios.push_back(point.step_s / *at);
        }
      }
    }
    if (other != gpu && there && !ratios.empty()) {
      candidates.push_back({*there * log_mean(ratios), kErrorOfOtherFamily, 1,
                            "ratio of " + gpu + " to " + other + " in other families"});
    }
  }
  if (candidates.empty()) {
    std::vector<Numbers> rows;
    Numbers times;
    for (const auto& [family, list] : of_gpu->second) {
      for (const StepPoint& point : list) {
        rows.push_back({1, point.gflops});
        times.push_back(point.step_s);
      }
    }
    const double time = dot({1, *network.gflops}, relative_fit(rows, times));
    candidates.push_back(
        {std::max(time, times[0] / 100),
         std::max(kErrorOfOtherFamily, root_mean_square(leave_one_out(rows, times))), 1,
         "networks of other families on " + gpu});
  }
  return candidates;
}

Result<Forecast> StepTimes::step(const std::string& gpu, const Network& network,
                                 const std::string& kind) const {
  const auto rows = measured_.find(gpu);
  if (rows == measured_.end()) {
    std::string known;
    for (const auto& [name, of_type] : measured_) {
      known += (known.empty() ? "; it has " : ", ") + name;
    }
    return Error{Errc::kNotFound, "step_time.csv has no machine type " + gpu + known};
  }
  Numbers all, of_kind;
  for (const StepTimeRow& row : rows->second) {
    if (row.model == network.model) {
      all.push_back(row.step_s);
      if (row.kind == kind) {
        of_kind.push_back(row.step_s);
      }
    }
  }
  if (!all.empty()) {
    const Numbers& used = of_kind.empty() ? all : of_kind;
    const double sd = day_spread_ * std::sqrt(1 + 1 / static_cast<double>(used.size()));
    return relative_forecast(log_mean(used), sd, 10,
                             {"s", network.model + " was measured on " + gpu + " in " +
                                       count_of(used.size(), "campaign")});
  }
  if (!network.gflops) {
    return Error{Errc::kNotFound,
                 "nothing is known of network '" + network.model + "': give family and gflops"};
  }
  std::vector<Candidate> candidates;
  if (const std::optional<Candidate> overlap = from_overlap(gpu, network)) {
    candidates.push_back(*overlap);
  } else {
    candidates = from_family(gpu, network.family, network.model, *network.gflops);
  }
  if (candidates.empty()) {
    candidates = from_other_families(gpu, network);
  }
  double weights = 0, log_step = 0, variance = 0;
  std::string because;
  for (const Candidate& candidate : candidates) {
    weights += candidate.weight;
    log_step += candidate.weight * std::log(candidate.step_s);
    because += (because.empty() ? "" : "; ") + candidate.because;
  }
  log_step /= weights;
  for (const Candidate& candidate : candidates) {
    const double apart = std::log(candidate.step_s) - log_step;
    variance += candidate.weight * (candidate.error * candidate.error + apart * apart) / weights;
  }
  double least = std::numeric_limits<double>::max();
  double most = 0;
  for (const StepPoint& point : points(gpu, network.family)) {
    least = std::min(least, point.gflops);
    most = std::max(most, point.gflops);
  }
  const double outside =
      most == 0 ? 0 : std::log(std::max({1.0, *network.gflops / most, least / *network.gflops}));
  const double sd = std::sqrt(variance + day_spread_ * day_spread_) + kErrorOutside * outside;
  return relative_forecast(std::exp(log_step), sd, 5, {"s", because});
}

/// One line in the number of parameters for all machine types, because the latency is that of the
/// connection; types differ by a factor that is near one.
Result<Forecast> StepTimes::latency_cost(const std::string& gpu, const Network& network,
                                         double further_ms) const {
  if (latencies_.empty() || !network.params) {
    return Error{Errc::kNotFound,
                 "the cost of latency needs rows of step_time.csv with two latencies, and params"};
  }
  struct Point {
    std::size_t type;
    double params, log_cost;
  };
  std::vector<Point> points;
  std::vector<std::string> types;
  Numbers per_parameter, costs;
  for (const auto& [type, list] : latencies_) {
    for (const LatencyPoint& point : list) {
      points.push_back({types.size(), point.params, std::log(point.cost_s_per_ms)});
      per_parameter.push_back(point.cost_s_per_ms / point.params);
      costs.push_back(point.cost_s_per_ms);
    }
    types.push_back(type);
  }
  // The prior: half of a typical cost depends on the number of parameters.
  enum : std::size_t { kConstant, kSlope, kFirstType };
  std::vector<Prior> priors = {{std::log(log_mean(costs) / 2), kUnknownLatency},
                               {std::log(log_mean(per_parameter) / 2), kUnknownLatency}};
  priors.resize(kFirstType + types.size(), {0, kTypesApart});
  const auto log_cost = [](const Numbers& at, std::optional<std::size_t> type, double params) {
    return std::log(std::exp(at[kConstant]) + std::exp(at[kSlope]) * params) +
           (type ? at[kFirstType + *type] : 0);
  };
  const Posterior fit = fit_posterior(priors, [&](const Numbers& at) {
    Numbers errors;
    for (const Point& point : points) {
      errors.push_back((log_cost(at, point.type, point.params) - point.log_cost) / kErrorOfLatency);
    }
    return errors;
  });
  const auto own = std::ranges::find(types, gpu);
  const bool is_known = own != types.end();
  const std::optional<std::size_t> type =
      is_known ? std::optional(static_cast<std::size_t>(own - types.begin())) : std::nullopt;
  const double sd = std::hypot(
      fit.deviation_of([&](const Numbers& at) { return log_cost(at, type, *network.params); }),
      kErrorOfLatency, is_known ? 0 : kTypesApart);
  return relative_forecast(
      std::exp(log_cost(fit.mean, type, *network.params)) * further_ms, sd, 5,
      {"s", count_of(points.size(), "measurement") + " with further latency, " +
                std::to_string(is_known ? latencies_.at(gpu).size() : 0) + " of them on " + gpu});
}

Result<Forecast> StepTimes::step_with_latency(const std::string& gpu, const Network& network,
                                              double latency_ms, const std::string& kind) const {
  TRY_ASSIGN(const Forecast base, step(gpu, network, kind));
  const double further_ms = latency_ms - base_latency_ms_;
  if (further_ms <= kSlackLatencyMs) {
    return base;
  }
  TRY_ASSIGN(const Forecast cost, latency_cost(gpu, network, further_ms));
  const Estimate step_alone = base.summary();
  const Estimate added = cost.summary();
  const double median = step_alone.median + added.median;
  const double width = std::hypot(std::log(step_alone.high / step_alone.median) * step_alone.median,
                                  std::log(added.high / added.median) * added.median) /
                       median;
  return relative_forecast(median, width / student_quantile(0.95, 5), 5,
                           {"s", step_alone.because + "; " + added.because});
}

}  // namespace mayfly::planner
