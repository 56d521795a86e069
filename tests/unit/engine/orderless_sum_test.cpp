#include "engine/reduction/orderless_sum.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace mayfly::engine {
namespace {

OrderlessSum sum_of(const std::vector<double>& terms) {
  OrderlessSum sum;
  for (const double term : terms) {
    sum.add(term);
  }
  return sum;
}

TEST(OrderlessSum, IsTheSameInAnyOrderAndInParts) {
  const OrderlessSum all = sum_of({0.1, 4e9, -0.3, 7.25});
  OrderlessSum parts = sum_of({7.25, -0.3});
  parts.add(sum_of({4e9, 0.1}));
  EXPECT_EQ(parts.total(), all.total());
  EXPECT_NEAR(all.total(), 4e9 + 7.05, 1e-5);
}

TEST(OrderlessSum, OfTermsWithoutAPlaceIsNotANumber) {
  EXPECT_TRUE(std::isnan(sum_of({1, std::numeric_limits<double>::quiet_NaN()}).total()));
  EXPECT_TRUE(std::isnan(sum_of({-std::numeric_limits<double>::infinity(), 1}).total()));
  EXPECT_TRUE(std::isnan(sum_of({1e16, -1e16}).total()));
  OrderlessSum sum = sum_of({1});
  sum.add(sum_of({std::numeric_limits<double>::infinity()}));
  EXPECT_TRUE(std::isnan(sum.total()));
}

}  // namespace
}  // namespace mayfly::engine
