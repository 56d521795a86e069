#pragma once

// The answer of every model of the planner: a number with a prediction interval. Pure.

#include <functional>
#include <string>
#include <vector>

namespace mayfly::planner {

/// Standard deviations between the median of a normal distribution and a bound of its central 90 %.
inline constexpr double kHalfOf90 = 1.6449;

/// A predicted quantity. `low` and `high` bound the central 90 % of the values that a new
/// observation may take; they include the error of the fit and the spread of runs and of days.
struct Estimate {
  double median = 0;
  double low = 0;
  double high = 0;
  std::string unit;     ///< "s", "steps/s", "usd", "share", ...
  std::string because;  ///< the data that the estimate rests on, in one sentence
};

/// The whole distribution of a predicted quantity.
struct Forecast {
  /// The value that a new observation stays below with probability `p`, 0 < p < 1. Never empty,
  /// never decreasing in `p`.
  std::function<double(double p)> quantile;
  double mean = 0;
  std::string unit;
  std::string because;
  /// Standard error of the mean because simulations are random; 0 if nothing was simulated.
  double standard_error = 0;

  /// The median and the quantiles at 5 and 95 %.
  [[nodiscard]] Estimate summary() const;
  /// The probability that a new observation is at most `value`, within 1e-6.
  [[nodiscard]] double probability_at_most(double value) const;
};

/// The unit and the explanation of a forecast.
struct Reason {
  std::string unit;
  std::string because;
};

/// The quantile `p` of Student's t distribution; infinite `degrees` give the normal distribution.
[[nodiscard]] double student_quantile(double p, double degrees);
/// The quantile `p` of a gamma distribution with this mean and this shape; both positive.
[[nodiscard]] double gamma_quantile(double p, double mean, double shape);

/// A positive quantity whose logarithm has Student's t distribution around log(median), with the
/// scale `relative_sd`.
[[nodiscard]] Forecast relative_forecast(double median, double relative_sd, double degrees,
                                         Reason reason);
/// A quantity with Student's t distribution around its median, cut off at `least` and `most`.
[[nodiscard]] Forecast absolute_forecast(double median, double sd, double degrees, double least,
                                         double most, Reason reason);
/// A quantity that is known only from a sample, sorted or not; linear between its values. Needs at
/// least one value.
[[nodiscard]] Forecast sampled_forecast(std::vector<double> values, Reason reason);

}  // namespace mayfly::planner
