#include "planner/estimate.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace mayfly::planner {
namespace {

constexpr double kNormalDegrees = 1e9;

TEST(Estimate, ARelativeForecastHasAnIntervalOfFactors) {
  const Forecast forecast = relative_forecast(100, 0.1, kNormalDegrees, {"s", "two points"});
  const Estimate estimate = forecast.summary();
  EXPECT_NEAR(estimate.median, 100, 1e-9);
  EXPECT_NEAR(estimate.high, 100 * std::exp(0.1 * 1.644854), 1e-3);
  EXPECT_NEAR(estimate.low * estimate.high, 100 * 100, 1e-6);
  EXPECT_EQ(estimate.unit, "s");
  EXPECT_EQ(estimate.because, "two points");
  EXPECT_NEAR(forecast.probability_at_most(estimate.high), 0.95, 1e-5);
}

TEST(Estimate, FewDegreesOfFreedomWidenTheInterval) {
  const Estimate wide = relative_forecast(1, 0.1, 1, {"", ""}).summary();
  const Estimate narrow = relative_forecast(1, 0.1, 30, {"", ""}).summary();
  EXPECT_GT(wide.high, 1.8);
  EXPECT_LT(narrow.high, 1.2);
}

TEST(Estimate, AnAbsoluteForecastStaysWithinItsBounds) {
  const Forecast forecast = absolute_forecast(0.95, 0.1, kNormalDegrees, 0, 1, {"share", ""});
  EXPECT_EQ(forecast.summary().high, 1);
  EXPECT_EQ(forecast.probability_at_most(1), 1);
  EXPECT_EQ(forecast.probability_at_most(-0.1), 0);
}

TEST(Estimate, ASampleIsItsOwnDistribution) {
  const Forecast forecast = sampled_forecast({3, 1, 2}, {"s", ""});
  EXPECT_EQ(forecast.mean, 2);
  EXPECT_EQ(forecast.summary().median, 2);
  EXPECT_EQ(forecast.summary().high, 3);
  EXPECT_EQ(forecast.quantile(0.01), 1);
}

TEST(Estimate, AGammaQuantileFollowsItsMean) {
  EXPECT_NEAR(gamma_quantile(0.5, 10, 1e6), 10, 0.01);
  EXPECT_NEAR(gamma_quantile(0.5, 1, 1), std::log(2), 1e-9);
}

}  // namespace
}  // namespace mayfly::planner
