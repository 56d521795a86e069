#include "planner/models/overlapped_steps.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace mayfly::planner {
namespace {

constexpr double kSharp = 12;  // of the bend between launching and computing
/// Standard deviations of logarithms before any measurement.
constexpr double kUnknownTime = 1.0;
constexpr double kUnknownRatio = 2.0;  // of computing to moving data at a typical width
constexpr double kHosts = 0.3;         // of the hosts of different machine types

enum : std::size_t { kLaunch, kRatio, kFirstType };

}  // namespace

OverlappedSteps::OverlappedSteps(const std::vector<FamilyPoint>& points, double noise) {
  ENSURE(!points.empty() && noise > 0, "there are measurements, which scatter");
  double log_width = 0;
  double log_least = std::log(points[0].step_s / points[0].tensors);
  double log_moving = 0;
  const auto count = static_cast<double>(points.size());
  for (const FamilyPoint& point : points) {
    types_.try_emplace(point.gpu, types_.size());
    const double per_tensor = std::log(point.step_s / point.tensors);
    log_width += std::log(point.gflops / point.tensors) / 2 / count;
    log_least = std::min(log_least, per_tensor);
    log_moving += (per_tensor - std::log(point.gflops / point.tensors) / 2) / count;
  }
  width_ = std::exp(log_width);
  std::vector<Prior> priors(kFirstType + 2 * types_.size(), Prior{0, kHosts});
  priors[kLaunch] = {log_least, kUnknownTime};
  priors[kRatio] = {0, kUnknownRatio};
  for (std::size_t type = 0; type < types_.size(); ++type) {  // half moves data, half computes
    priors[kFirstType + 2 * type] = {log_moving + log_width - std::log(2), kUnknownTime};
  }
  posterior_ = fit_posterior(priors, [&](const Numbers& parameters) {
    Numbers errors;
    for (const FamilyPoint& point : points) {
      errors.push_back((log_step(parameters, point) - std::log(point.step_s)) / noise);
    }
    return errors;
  });
}

double OverlappedSteps::log_step(const Numbers& parameters, const FamilyPoint& of) const {
  const std::size_t type = kFirstType + 2 * types_.at(of.gpu);
  const double width = std::sqrt(of.gflops / of.tensors) / width_;
  const double launching = parameters[kLaunch] + parameters[type + 1];
  const double computing =
      parameters[type] + std::log(width) + std::log1p(std::exp(parameters[kRatio]) * width);
  const double longer = std::max(launching, computing);
  return std::log(of.tensors) + longer +
         std::log1p(std::exp(-kSharp * std::abs(launching - computing))) / kSharp;
}

double OverlappedSteps::step_s(const FamilyPoint& of) const {
  return std::exp(log_step(posterior_.mean, of));
}

double OverlappedSteps::log_sd(const FamilyPoint& of) const {
  return posterior_.deviation_of(
      [&](const Numbers& parameters) { return log_step(parameters, of); });
}

Numbers leave_one_out(const std::vector<FamilyPoint>& points, double noise) {
  Numbers errors;
  for (std::size_t out = 0; out < points.size(); ++out) {
    std::vector<FamilyPoint> kept = points;
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(out));
    const bool is_known = std::ranges::count(kept, points[out].gpu, &FamilyPoint::gpu) > 0;
    errors.push_back(
        is_known ? std::log(OverlappedSteps(kept, noise).step_s(points[out]) / points[out].step_s)
                 : 0);
  }
  return errors;
}

}  // namespace mayfly::planner
