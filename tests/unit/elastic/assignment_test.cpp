#include "elastic/core/next_view.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"

namespace mayfly::elastic {
namespace {

std::vector<std::uint32_t> counts(const std::vector<float>& speeds, std::uint32_t microbatches) {
  std::vector<std::uint32_t> sizes;
  for (const MicrobatchRange& range : proportional_ranges(speeds, microbatches)) {
    sizes.push_back(range.count);
  }
  return sizes;
}

void expect_partition(const std::vector<MicrobatchSet>& sets, std::uint32_t microbatches) {
  MicrobatchSet seen;
  std::uint32_t total = 0;
  for (const MicrobatchSet& set : sets) {
    seen.add_all(set);
    total += set.count();
  }
  EXPECT_EQ(total, microbatches);
  EXPECT_EQ(seen, MicrobatchSet::range(0, microbatches));
}

TEST(ProportionalRanges, AreContiguousAndCoverTheStepOnceForAnySpeeds) {
  constexpr std::uint64_t kSeed = 3;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 500; ++round) {
    std::vector<float> speeds(1 + random.below(12));
    for (float& speed : speeds) {
      speed = random.below(4) == 0 ? 0.0F : static_cast<float>(1 + random.below(1000));
    }
    const auto microbatches = static_cast<std::uint32_t>(1 + random.below(100));
    std::uint32_t at = 0;
    for (const MicrobatchRange& range : proportional_ranges(speeds, microbatches)) {
      ASSERT_EQ(range.first, at) << "seed " << kSeed << " round " << round;
      at += range.count;
    }
    ASSERT_EQ(at, microbatches) << "seed " << kSeed << " round " << round;
  }
}

TEST(ProportionalRanges, SizesDifferByAtMostOneIfSpeedsAreAboutEqual) {
  EXPECT_EQ(counts({10, 11, 12}, 8), (std::vector<std::uint32_t>{3, 3, 2}));
  EXPECT_EQ(counts({0, 0, 0, 0, 0}, 8), (std::vector<std::uint32_t>{2, 2, 2, 1, 1}));
  EXPECT_EQ(counts({5, 0}, 8), (std::vector<std::uint32_t>{4, 4}));
}

TEST(ProportionalRanges, AMemberTwiceAsFastGetsTwiceTheWork) {
  EXPECT_EQ(counts({10, 20}, 12), (std::vector<std::uint32_t>{8, 4}));
  EXPECT_EQ(counts({30, 10, 10}, 14), (std::vector<std::uint32_t>{2, 6, 6}));
}

TEST(ProportionalRanges, AnUnknownSpeedCountsAsTheMedian) {
  EXPECT_EQ(counts({10, 30, 30, 0}, 12), counts({10, 30, 30, 30}, 12));
}

TEST(ProportionalRanges, TheSlowestStillGetsOneToBeMeasured) {
  EXPECT_EQ(counts({1, 1, 10000}, 16).back(), 1u);
}

TEST(ProportionalRanges, MoreMembersThanMicrobatchesLeavesTheLastOnesIdle) {
  EXPECT_EQ(counts({0, 0, 0}, 2), (std::vector<std::uint32_t>{1, 1, 0}));
}

float longest(const std::vector<float>& times, const std::vector<std::uint32_t>& counts) {
  float most = 0;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    most = std::max(most, times[rank] * static_cast<float>(counts[rank]));
  }
  return most;
}

TEST(ProportionalRanges, NoOtherSharesOfAtLeastOneWouldBeDoneSooner) {
  EXPECT_EQ(counts({10, 25}, 5), (std::vector<std::uint32_t>{4, 1}));
  constexpr std::uint64_t kSeed = 5;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> times = {10, static_cast<float>(13 + random.below(60)),
                                      static_cast<float>(13 + random.below(60))};
    const auto microbatches = static_cast<std::uint32_t>(3 + random.below(15));
    float best = longest(times, {microbatches, microbatches, microbatches});
    for (std::uint32_t a = 1; a + 2 <= microbatches; ++a) {
      for (std::uint32_t b = 1; a + b + 1 <= microbatches; ++b) {
        best = std::min(best, longest(times, {a, b, microbatches - a - b}));
      }
    }
    EXPECT_EQ(longest(times, counts(times, microbatches)), best)
        << "seed " << kSeed << " round " << round;
  }
}

TEST(ProportionalRanges, SpeedsCountAsEqualUpToAFifth) {
  EXPECT_EQ(counts({10, 12}, 12), (std::vector<std::uint32_t>{6, 6}));
  EXPECT_EQ(counts({10, 12.5F}, 12), (std::vector<std::uint32_t>{7, 5}));
}

TEST(FirstStepSets, EqualTheRangesIfNobodyHoldsAnything) {
  const auto sets = first_step_sets({{}, {}}, {0, 0}, 5);
  EXPECT_EQ(sets[0], MicrobatchSet::range(0, 3));
  EXPECT_EQ(sets[1], MicrobatchSet::range(3, 2));
}

TEST(FirstStepSets, SurvivorsKeepWhatTheyHoldAndTheMissingIsSpreadEvenly) {
  const auto sets =
      first_step_sets({MicrobatchSet::range(0, 2), MicrobatchSet::range(2, 2)}, {0, 0}, 8);
  expect_partition(sets, 8);
  EXPECT_TRUE(sets[0].contains(0) && sets[0].contains(1));
  EXPECT_TRUE(sets[1].contains(2) && sets[1].contains(3));
  EXPECT_EQ(sets[0].count(), 4u);
  EXPECT_EQ(sets[1].count(), 4u);
}

TEST(FirstStepSets, OfTwoHoldersTheFirstInRankOrderKeepsIt) {
  const auto sets = first_step_sets(
      {MicrobatchSet::range(0, 3), MicrobatchSet::range(2, 3), MicrobatchSet{}}, {0, 0, 0}, 5);
  EXPECT_EQ(sets[0], MicrobatchSet::range(0, 3));
  EXPECT_EQ(sets[1], MicrobatchSet::range(3, 2));
  EXPECT_TRUE(sets[2].empty());
}

// At a boundary each member has begun one microbatch, and holds it, when a newcomer's view comes.
TEST(FirstStepSets, ANewcomerComesFirstAmongEquals) {
  const auto sets = first_step_sets({MicrobatchSet::range(0, 1),
                                     MicrobatchSet::range(2, 1),
                                     MicrobatchSet::range(4, 1),
                                     MicrobatchSet::range(6, 1),
                                     {}},
                                    {10, 10, 10, 10, 0}, 8);
  expect_partition(sets, 8);
  std::vector<std::uint32_t> sizes;
  for (const MicrobatchSet& set : sets) {
    sizes.push_back(set.count());
  }
  EXPECT_EQ(sizes, (std::vector<std::uint32_t>{2, 2, 2, 1, 1}));
}

TEST(FirstStepSets, ANewcomerComesFirstAmongUnequalsToo) {
  const auto sets = first_step_sets(
      {MicrobatchSet::range(0, 1), MicrobatchSet::range(1, 1), MicrobatchSet::range(2, 1), {}},
      {10, 13, 16, 0}, 4);
  expect_partition(sets, 4);
  EXPECT_EQ(sets[3], MicrobatchSet::range(3, 1));
}

TEST(FirstStepSets, ClaimsBeyondTheStepAreIgnored) {
  const auto sets = first_step_sets({MicrobatchSet::range(2, 40)}, {0}, 4);
  EXPECT_EQ(sets[0], MicrobatchSet::range(0, 4));
}

TEST(FirstStepSets, WhatIsMissingGoesToWhoIsDoneWithItFirst) {
  const auto sets =
      first_step_sets({MicrobatchSet::range(0, 1), MicrobatchSet::range(1, 1)}, {10, 35}, 5);
  EXPECT_EQ(sets[0].count(), 4u) << "three more take 30 ms, one more of the other would take 35";
  EXPECT_EQ(sets[1], MicrobatchSet::range(1, 1));
}

TEST(FirstStepSets, CoverTheStepOnceForAnyClaims) {
  constexpr std::uint64_t kSeed = 4;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 500; ++round) {
    const std::size_t ranks = 1 + random.below(8);
    std::vector<MicrobatchSet> held(ranks);
    std::vector<float> speeds(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      speeds[rank] = static_cast<float>(random.below(5));
      for (std::uint64_t i = 0; i < random.below(10); ++i) {
        held[rank].add(static_cast<std::uint32_t>(random.below(32)));
      }
    }
    expect_partition(first_step_sets(held, speeds, 24), 24);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << kSeed << " round " << round;
  }
}

}  // namespace
}  // namespace mayfly::elastic
