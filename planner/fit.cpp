#include "planner/fit.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.hpp"

namespace mayfly::planner {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

constexpr double kDifference = 1e-5;
constexpr int kRounds = 30;
constexpr double kDone = 1e-9;

Eigen::Index index(std::size_t i) {
  return static_cast<Eigen::Index>(i);
}

Vector to_vector(const Numbers& numbers) {
  return Eigen::Map<const Vector>(numbers.data(), index(numbers.size()));
}

Numbers to_numbers(const Vector& vector) {
  return {vector.data(), vector.data() + vector.size()};
}

Numbers shifted(Numbers parameters, std::size_t i, double by) {
  parameters[i] += by;
  return parameters;
}

Matrix jacobian(const Residuals& residuals, const Numbers& at, Eigen::Index rows) {
  Matrix slopes(rows, index(at.size()));
  for (std::size_t i = 0; i < at.size(); ++i) {
    slopes.col(index(i)) = (to_vector(residuals(shifted(at, i, kDifference))) -
                            to_vector(residuals(shifted(at, i, -kDifference)))) /
                           (2 * kDifference);
  }
  return slopes;
}

double cost(const Vector& residuals, const Vector& from_prior) {
  return residuals.squaredNorm() + from_prior.squaredNorm();
}

}  // namespace

Numbers relative_fit(const std::vector<Numbers>& features, const Numbers& values) {
  ENSURE(!values.empty() && features.size() == values.size(), "a fit to no values");
  Matrix scaled(index(values.size()), index(features[0].size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    scaled.row(index(i)) = to_vector(features[i]).transpose() / values[i];
  }
  return to_numbers(
      scaled.completeOrthogonalDecomposition().solve(Vector::Ones(index(values.size()))));
}

Numbers leave_one_out(const std::vector<Numbers>& features, const Numbers& values) {
  if (values.size() < 2 || values.size() - 1 < features[0].size()) {
    return {};
  }
  Numbers errors;
  for (std::size_t out = 0; out < values.size(); ++out) {
    std::vector<Numbers> kept = features;
    Numbers kept_values = values;
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(out));
    kept_values.erase(kept_values.begin() + static_cast<std::ptrdiff_t>(out));
    const double predicted = dot(features[out], relative_fit(kept, kept_values));
    errors.push_back(std::log(std::max(predicted, values[out] / 100) / values[out]));
  }
  return errors;
}

double dot(const Numbers& a, const Numbers& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double root_mean_square(const Numbers& values) {
  return values.empty() ? 0 : std::sqrt(dot(values, values) / static_cast<double>(values.size()));
}

double Posterior::deviation_of(const std::function<double(const Numbers&)>& quantity) const {
  Numbers slopes(mean.size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    slopes[i] =
        (quantity(shifted(mean, i, kDifference)) - quantity(shifted(mean, i, -kDifference))) /
        (2 * kDifference);
  }
  double variance = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    variance += slopes[i] * dot(covariance[i], slopes);
  }
  return std::sqrt(std::max(variance, 0.0));
}

Posterior fit_posterior(const std::vector<Prior>& priors, const Residuals& residuals) {
  Vector centre(index(priors.size()));
  Vector weights(index(priors.size()));
  for (std::size_t i = 0; i < priors.size(); ++i) {
    ENSURE(priors[i].sd > 0, "a prior without spread");
    centre[index(i)] = priors[i].mean;
    weights[index(i)] = 1 / priors[i].sd;
  }
  const auto from_prior = [&](const Vector& at) { return (at - centre).cwiseProduct(weights); };
  Vector at = centre;
  Matrix curvature;
  for (int step = 0; step < kRounds; ++step) {
    const Vector errors = to_vector(residuals(to_numbers(at)));
    const Matrix slopes = jacobian(residuals, to_numbers(at), errors.size());
    curvature = slopes.transpose() * slopes;
    curvature += weights.cwiseAbs2().asDiagonal();
    const Vector change = -curvature.ldlt().solve(slopes.transpose() * errors +
                                                  weights.cwiseAbs2().cwiseProduct(at - centre));
    // The step is halved until it improves the fit: the full one may lead too far where a model
    // saturates.
    const double before = cost(errors, from_prior(at));
    double share = 1;
    while (share > kDone && cost(to_vector(residuals(to_numbers(at + share * change))),
                                 from_prior(at + share * change)) > before) {
      share /= 2;
    }
    at += share * change;
    if (share <= kDone || share * change.cwiseAbs().maxCoeff() < kDone) {
      break;
    }
  }
  Posterior posterior;
  posterior.mean = to_numbers(at);
  const Matrix covariance = curvature.ldlt().solve(Matrix::Identity(at.size(), at.size()));
  for (Eigen::Index i = 0; i < covariance.rows(); ++i) {
    posterior.covariance.push_back(to_numbers(covariance.row(i)));
  }
  const double log_determinant = curvature.ldlt().vectorD().array().log().sum();
  posterior.log_evidence =
      -(cost(to_vector(residuals(to_numbers(at))), from_prior(at)) + log_determinant) / 2 +
      weights.array().log().sum();
  return posterior;
}

}  // namespace mayfly::planner
