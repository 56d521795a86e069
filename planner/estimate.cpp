#include "planner/estimate.hpp"

#include <algorithm>
#include <boost/math/distributions/gamma.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "base/check.hpp"
#include "base/statistics.hpp"

namespace mayfly::planner {
namespace {

constexpr double kLeastProbability = 1e-6;
constexpr double kManyDegrees = 1e6;

}  // namespace

Estimate Forecast::summary() const {
  return {quantile(0.5), quantile(0.05), quantile(0.95), unit, because};
}

double Forecast::probability_at_most(double value) const {
  double below = 0;
  double above = 1;
  while (above - below > kLeastProbability) {
    const double middle = (below + above) / 2;
    (quantile(middle) <= value ? below : above) = middle;
  }
  return below < kLeastProbability ? 0 : above > 1 - kLeastProbability ? 1 : below;
}

double student_quantile(double p, double degrees) {
  ENSURE(p > 0 && p < 1 && degrees > 0, "quantile outside of the distribution");
  return degrees > kManyDegrees
             ? boost::math::quantile(boost::math::normal_distribution<double>(), p)
             : boost::math::quantile(boost::math::students_t_distribution<double>(degrees), p);
}

double gamma_quantile(double p, double mean, double shape) {
  ENSURE(p > 0 && p < 1 && mean > 0 && shape > 0, "quantile outside of the distribution");
  return boost::math::quantile(boost::math::gamma_distribution<double>(shape, mean / shape), p);
}

Forecast relative_forecast(double median, double relative_sd, double degrees, Reason reason) {
  return {[=](double p) { return median * std::exp(relative_sd * student_quantile(p, degrees)); },
          median * std::exp(relative_sd * relative_sd / 2), std::move(reason.unit),
          std::move(reason.because)};
}

Forecast absolute_forecast(double median, double sd, double degrees, double least, double most,
                           Reason reason) {
  return {
      [=](double p) { return std::clamp(median + sd * student_quantile(p, degrees), least, most); },
      std::clamp(median, least, most), std::move(reason.unit), std::move(reason.because)};
}

Forecast sampled_forecast(std::vector<double> values, Reason reason) {
  ENSURE(!values.empty(), "a forecast from no value");
  std::sort(values.begin(), values.end());
  const double mean = mean_of(values);
  return {[values = std::move(values)](double p) {
            const double place = std::clamp(p * static_cast<double>(values.size()) - 0.5, 0.0,
                                            static_cast<double>(values.size() - 1));
            const auto below = static_cast<std::size_t>(place);
            const std::size_t above = std::min(below + 1, values.size() - 1);
            const double share = place - static_cast<double>(below);
            return values[below] + share * (values[above] - values[below]);
          },
          mean, std::move(reason.unit), std::move(reason.because)};
}

}  // namespace mayfly::planner
