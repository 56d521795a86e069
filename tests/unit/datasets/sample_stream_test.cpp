#include "datasets/core/sample_stream.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace mayfly::datasets {
namespace {

TEST(SampleStream, UsesEachSampleOnceInEveryEpochForEverySmallSize) {
  for (std::uint64_t n = 1; n <= 4096; ++n) {
    const SampleStream stream(n * 77, n);
    const std::uint64_t epoch = n % 3;
    std::vector<bool> seen(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const StreamEntry entry = stream.at(epoch * n + i);
      ASSERT_EQ(entry.epoch, epoch);
      ASSERT_LT(entry.sample, n);
      ASSERT_FALSE(seen[entry.sample]) << "n " << n << " position " << i;
      seen[entry.sample] = true;
    }
  }
}

TEST(SampleStream, UsesEachSampleOnceForCifarAndImagenetSizes) {
  for (const std::uint64_t n : {50'000ULL, 1'281'167ULL}) {
    const SampleStream stream(1, n);
    std::vector<bool> seen(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t sample = stream.at(i).sample;
      ASSERT_FALSE(seen[sample]);
      seen[sample] = true;
    }
  }
}

TEST(SampleStream, IsInvertedByPositionOfForRandomLargeSizes) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t n = 1 + random() % (std::uint64_t{1} << (1 + random() % 48));
    const SampleStream stream(random(), n);
    for (int i = 0; i < 50; ++i) {
      const std::uint64_t epoch = random() % 1000;
      const std::uint64_t position = epoch * n + random() % n;
      const StreamEntry entry = stream.at(position);
      ASSERT_LT(entry.sample, n);
      ASSERT_EQ(entry.epoch, epoch);
      ASSERT_EQ(stream.position_of(entry.epoch, entry.sample), position) << "n " << n;
    }
  }
}

// The order is part of the checkpoint format: these values may never change.
TEST(SampleStream, GivesTheGoldenOrder) {
  const auto first = [](std::uint64_t seed, std::uint64_t n, std::uint64_t from) {
    std::vector<std::uint64_t> samples;
    const SampleStream stream(seed, n);
    for (std::uint64_t i = 0; i < 6; ++i) {
      samples.push_back(stream.at(from + i).sample);
    }
    return samples;
  };
  using Samples = std::vector<std::uint64_t>;
  EXPECT_EQ(first(1, 50'000, 0), (Samples{37967, 42992, 45033, 47001, 16928, 43633}));
  EXPECT_EQ(first(1, 50'000, 50'000), (Samples{24624, 28166, 29111, 24021, 38273, 14058}));
  EXPECT_EQ(first(2, 1'281'167, 5), (Samples{75497, 1162018, 498712, 337062, 217143, 889721}));
  EXPECT_EQ(first(0, 10, 7), (Samples{2, 3, 1, 4, 8, 0}));
}

TEST(SampleStream, OrdersOfDifferentEpochsAndSeedsAreUnrelated) {
  constexpr std::uint64_t kCount = 50'000;
  const SampleStream stream(7, kCount);
  const SampleStream other(8, kCount);
  int same_epoch = 0;
  int same_seed = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    same_epoch += stream.at(i).sample == stream.at(kCount + i).sample ? 1 : 0;
    same_seed += stream.at(i).sample == other.at(i).sample ? 1 : 0;
  }
  // Unrelated permutations agree in one place on average (Poisson).
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(same_seed, 10);
}

// Goal: consecutive positions lead to unrelated samples. Method: correlation of neighbours; its
// standard deviation is 1/sqrt(N).
TEST(SampleStream, NeighboursAreUncorrelated) {
  for (const std::uint64_t n : {1'000ULL, 50'000ULL, 1'281'167ULL}) {
    const SampleStream stream(3, n);
    const double middle = (static_cast<double>(n) - 1) / 2;
    double sum = 0;
    double square = 0;
    double last = static_cast<double>(stream.at(0).sample) - middle;
    for (std::uint64_t i = 1; i < n; ++i) {
      const double now = static_cast<double>(stream.at(i).sample) - middle;
      sum += last * now;
      square += now * now;
      last = now;
    }
    EXPECT_LT(std::abs(sum / square), 4.5 / std::sqrt(static_cast<double>(n))) << "n " << n;
  }
}

// Goal: every part of the epoch draws from every part of the data set. Method: chi-square of a
// 64 x 64 table of (position, sample); for a random permutation chi2/dof is 1 with deviation 0.022.
TEST(SampleStream, SpreadsPositionsEvenlyOverSamples) {
  for (const std::uint64_t n : {50'000ULL, 262'144ULL}) {
    for (const std::uint64_t seed : {1ULL, 2ULL, 3ULL}) {
      const SampleStream stream(seed, n);
      std::vector<double> table(64 * 64, 0);
      for (std::uint64_t i = 0; i < n; ++i) {
        table[(i * 64 / n) * 64 + stream.at(i).sample * 64 / n] += 1;
      }
      const double expected = static_cast<double>(n) / (64 * 64);
      double chi2 = 0;
      for (const double count : table) {
        chi2 += (count - expected) * (count - expected) / expected;
      }
      EXPECT_NEAR(chi2 / (63 * 63), 1.0, 0.11) << "n " << n << " seed " << seed;
    }
  }
}

TEST(SampleStream, NextUseIsTheFirstPositionThatHasTheSample) {
  const SampleStream stream(7, 50);
  for (std::uint64_t position = 0; position < 150; ++position) {
    EXPECT_EQ(stream.next_use(position, stream.at(position).sample), position);
    const std::uint64_t sample = position % 50;
    const std::uint64_t next = stream.next_use(position, sample);
    EXPECT_GE(next, position);
    EXPECT_EQ(stream.at(next).sample, sample);
    for (std::uint64_t between = position; between < next; ++between) {
      EXPECT_NE(stream.at(between).sample, sample);
    }
  }
}

}  // namespace
}  // namespace mayfly::datasets
