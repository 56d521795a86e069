#include "base/statistics.hpp"

#include <gtest/gtest.h>

namespace mayfly {
namespace {

TEST(Statistics, PercentileIsTheNearestMeasuredValue) {
  const std::vector<double> values = {5, 1, 4, 2, 3};
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(values, 0.5), 3);
  EXPECT_EQ(percentile(values, 0.9), 5);
  EXPECT_EQ(percentile(values, 1), 5);
}

TEST(Statistics, MedianOfAnEvenNumberIsTheMeanOfTheMiddle) {
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({9, 1, 2}), 2);
}

TEST(Statistics, ASampleHasMeanAndDeviation) {
  EXPECT_EQ(mean_of({1, 2, 3}), 2);
  EXPECT_EQ(deviation_of({1, 2, 3}), 1);
  EXPECT_EQ(deviation_of({1}), 0);
}

TEST(Statistics, NothingMeasuredIsZero) {
  EXPECT_EQ(mean_of({}), 0);
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(percentile({}, 0.9), 0);
}

}  // namespace
}  // namespace mayfly
