#include "observe/core/curves.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mayfly::observe {
namespace {

CurveRow row_of(std::uint32_t step, float loss) {
  CurveRow row{0.1 * step, step, {}};
  row.values[static_cast<std::size_t>(Value::kLoss)] = loss;
  return row;
}

Curves curves_of(std::uint32_t rows) {
  Curves curves;
  for (std::uint32_t i = 0; i < rows; ++i) {
    curves.push(row_of(i + 1, std::sin(0.01F * static_cast<float>(i))));
  }
  return curves;
}

TEST(Curves, ASpikeIsSeenAtEveryLevel) {
  Curves curves;
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    curves.push(row_of(i + 1, i == 54'321 ? 1000.F : 1.F));
  }
  for (std::size_t level = 0; level <= Curves::kLevels; ++level) {
    const std::size_t at = std::size_t{54'321} >> (2 * level);
    EXPECT_EQ(curves.bucket(level, Value::kLoss, at).max, 1000.F) << level;
    EXPECT_EQ(curves.bucket(level, Value::kLoss, at).min, level == 0 ? 1000.F : 1.F) << level;
    for (std::size_t i = 0; i < curves.buckets(level); ++i) {
      ASSERT_TRUE(i == at || curves.bucket(level, Value::kLoss, i).max == 1.F);
    }
  }
}

TEST(Curves, BucketsAreOfTheirRows) {
  const Curves curves = curves_of(1000);
  const Bucket bucket = curves.bucket(2, Value::kLoss, 3);
  float min = 2;
  float max = -2;
  double sum = 0;
  for (std::size_t i = 48; i < 64; ++i) {
    const float value = curves.value(Value::kLoss, i);
    min = std::min(min, value);
    max = std::max(max, value);
    sum += value;
  }
  EXPECT_EQ(bucket.min, min);
  EXPECT_EQ(bucket.max, max);
  EXPECT_NEAR(bucket.mean, sum / 16, 1e-6);
  EXPECT_EQ(bucket.count, 16U);
}

TEST(Curves, TruncatedAndFilledAgainIsTheSame) {
  const Curves whole = curves_of(777);
  Curves again = curves_of(777);
  again.truncate(300);
  EXPECT_EQ(again.rows(), 300U);
  for (std::size_t i = 300; i < 777; ++i) {
    again.push(whole.row(i));
  }
  for (std::size_t level = 0; level <= 6; ++level) {
    EXPECT_EQ(again.pack(level, 0, again.buckets(level)),
              whole.pack(level, 0, whole.buckets(level)));
  }
}

TEST(Curves, ValuesThatAreNotRecordedCountNowhere) {
  Curves curves;
  for (std::uint32_t i = 0; i < 16; ++i) {
    curves.push(row_of(i + 1, i % 2 == 0 ? 4.F : std::numeric_limits<float>::quiet_NaN()));
  }
  EXPECT_EQ(curves.bucket(2, Value::kLoss, 0).mean, 4.F);
  EXPECT_EQ(curves.bucket(2, Value::kLoss, 0).count, 8U);
  EXPECT_EQ(curves.bucket(0, Value::kLoss, 1).count, 0U);
}

TEST(Curves, ThePackedBytesHaveTheirSizes) {
  const Curves curves = curves_of(100);
  EXPECT_EQ(curves.pack(0, 0, 100).size(), 100U * (8 + 4 + 4 * kValues));
  EXPECT_EQ(curves.pack(1, 0, 25).size(), 25U * (8 + 4 + 16 * kValues));
  EXPECT_EQ(curves.pack(0, 90, 100).size(), 10U * (8 + 4 + 4 * kValues));
  EXPECT_EQ(curves.level_for(100), 0U);
  EXPECT_EQ(curves.level_for(99), 1U);
}

}  // namespace
}  // namespace mayfly::observe
