#include "base/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace mayfly {
namespace {

// The order of samples and every augmentation rest on these numbers: a change of any of them breaks
// resuming from older checkpoints. mix64 is checked against the published sequence of SplitMix64.
TEST(Random, Mix64IsSplitMix64) {
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(mix64(0x9e3779b97f4a7c15ULL), 0x6e789e6aa1b965f4ULL);
}

TEST(CounterRandom, IsAPureFunctionOfKeyAndCounter) {
  constexpr CounterRandom random(7);
  static_assert(random.bits(3) == CounterRandom(7).bits(3));
  EXPECT_NE(random.bits(3), random.bits(4));
  EXPECT_NE(random.bits(3), CounterRandom(8).bits(3));
}

TEST(CounterRandom, SplitsIntoDifferentStreams) {
  const CounterRandom random(1);
  std::set<std::uint64_t> draws{random.bits(0)};
  for (std::uint64_t tag = 0; tag < 1000; ++tag) {
    draws.insert(random.split(tag).bits(0));
  }
  EXPECT_EQ(draws.size(), 1001u);
  EXPECT_NE(random.split("crop").bits(0), random.split("flip").bits(0));
  EXPECT_EQ(random.split("crop").bits(0), random.split("crop").bits(0));
}

TEST(CounterRandom, BelowStaysBelowAndReachesEveryNumber) {
  const CounterRandom random(2);
  std::array<int, 7> hits{};
  for (std::uint64_t counter = 0; counter < 7000; ++counter) {
    const std::uint64_t draw = random.below(counter, hits.size());
    ASSERT_LT(draw, hits.size());
    ++hits[draw];
  }
  for (const int count : hits) {
    EXPECT_NEAR(count, 1000, 150);  // five standard deviations
  }
  EXPECT_EQ(random.below(5, 1), 0u);
}

TEST(CounterRandom, UnitIsInTheHalfOpenIntervalWithTheRightMean) {
  const CounterRandom random(3);
  double sum = 0;
  for (std::uint64_t counter = 0; counter < 10000; ++counter) {
    const double draw = random.unit(counter);
    ASSERT_GE(draw, 0.0);
    ASSERT_LT(draw, 1.0);
    sum += draw;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);
}

TEST(RandomStream, CountsUpwards) {
  const CounterRandom source(4);
  RandomStream stream(source);
  EXPECT_EQ(stream.bits(), source.bits(0));
  EXPECT_EQ(stream.below(10), source.below(1, 10));
  EXPECT_EQ(stream.unit(), source.unit(2));
}

}  // namespace
}  // namespace mayfly
