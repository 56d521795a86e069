#pragma once

// Fitting of the planner's models: least squares on relative errors, and the most likely parameters
// of a model with priors. Pure; any thread. Small problems: all matrices are dense.

#include <functional>
#include <vector>

namespace mayfly::planner {

using Numbers = std::vector<double>;

/// The coefficients c that minimise the sum of (features . c / value - 1)^2; the shortest such c if
/// several do. As many rows of `features` as `values`; the values are positive.
[[nodiscard]] Numbers relative_fit(const std::vector<Numbers>& features, const Numbers& values);

/// The errors log(predicted / value) of each value when it alone is left out of relative_fit. Empty
/// if the rest would not determine the coefficients.
[[nodiscard]] Numbers leave_one_out(const std::vector<Numbers>& features, const Numbers& values);

[[nodiscard]] double dot(const Numbers& a, const Numbers& b);
/// The root of the mean square; 0 for no value.
[[nodiscard]] double root_mean_square(const Numbers& values);

/// The distribution of a parameter before the fit.
struct Prior {
  double mean = 0;
  double sd = 1;
};

/// The most likely parameters, and their covariance in a normal approximation there (Laplace's
/// method; Bishop, Pattern Recognition and Machine Learning, section 4.4).
struct Posterior {
  Numbers mean;
  std::vector<Numbers> covariance;
  /// Logarithm of the probability of the observations under this model, up to a constant that
  /// depends only on their number.
  double log_evidence = 0;

  /// The standard deviation of a function of the parameters.
  [[nodiscard]] double deviation_of(
      const std::function<double(const Numbers& parameters)>& quantity) const;
};

/// Residuals are in units of their standard deviations.
using Residuals = std::function<Numbers(const Numbers& parameters)>;
[[nodiscard]] Posterior fit_posterior(const std::vector<Prior>& priors, const Residuals& residuals);

}  // namespace mayfly::planner
