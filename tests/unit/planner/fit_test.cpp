#include "planner/fit.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace mayfly::planner {
namespace {

TEST(Fit, ARelativeFitFindsTheLineThroughExactPoints) {
  const Numbers line = relative_fit({{1, 1}, {1, 2}, {1, 100}}, {5, 7, 203});
  EXPECT_NEAR(line[0], 3, 1e-9);
  EXPECT_NEAR(line[1], 2, 1e-9);
}

TEST(Fit, LeavingOneOutShowsTheErrorOfAnOutlierAlone) {
  const Numbers errors = leave_one_out({{1}, {1}, {1}}, {10, 10, 20});
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_NEAR(errors[2], std::log(0.5), 1e-9);
  EXPECT_TRUE(leave_one_out({{1, 2}, {1, 3}}, {1, 1}).empty());
}

TEST(Fit, ThePosteriorOfAMeanIsTheTextbooks) {
  // Prior N(0, 1), four observations of 2 with deviation 1: mean 4 * 2 / 5, variance 1 / 5.
  const Posterior posterior =
      fit_posterior({{0, 1}}, [](const Numbers& at) { return Numbers(4, at[0] - 2); });
  EXPECT_NEAR(posterior.mean[0], 1.6, 1e-6);
  EXPECT_NEAR(posterior.covariance[0][0], 0.2, 1e-6);
  EXPECT_NEAR(posterior.deviation_of([](const Numbers& at) { return 3 * at[0]; }),
              3 * std::sqrt(0.2), 1e-6);
}

TEST(Fit, EvidencePrefersTheModelThatObservationsFollow) {
  const auto evidence = [](double power) {
    return fit_posterior({{1, 10}},
                         [power](const Numbers& at) {
                           Numbers errors;
                           for (const double x : {1.0, 2.0, 3.0, 4.0}) {
                             errors.push_back((at[0] * std::pow(x, power) - x * x) / 0.1);
                           }
                           return errors;
                         })
        .log_evidence;
  };
  EXPECT_GT(evidence(2), evidence(1.5));
  EXPECT_GT(evidence(2), evidence(3));
}

TEST(Fit, TheMeanSquareHasARoot) {
  EXPECT_EQ(root_mean_square({3, 4, 0, 0}), 2.5);
}

}  // namespace
}  // namespace mayfly::planner
