#include "elastic/core/assignment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

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

std::vector<MicrobatchSet> sets_of(const std::vector<MicrobatchSet>& held,
                                   const std::vector<float>& microbatch_ms,
                                   std::uint32_t microbatches) {
  return first_step_sets(held, std::vector<MicrobatchSet>(held.size()), microbatch_ms,
                         microbatches);
}

/// Assigns each microbatch to the rank that would finish it first; among equal ones to the rank
/// that holds fewest, then to the lower rank.
std::vector<std::uint32_t> one_by_one(const std::vector<float>& times,
                                      const std::vector<std::uint32_t>& held,
                                      std::vector<std::uint32_t> counts, std::uint32_t more) {
  for (; more > 0; --more) {
    std::size_t first = 0;
    for (std::size_t rank = 1; rank < times.size(); ++rank) {
      const auto cost = [&](std::size_t r) {
        return std::pair(times[r] * static_cast<float>(counts[r] + 1), held[r]);
      };
      first = cost(rank) < cost(first) ? rank : first;
    }
    ++counts[first];
  }
  return counts;
}

TEST(FirstStepSets, AndRangesAreAsLargeAsIfEachMicrobatchWereGivenOutByItself) {
  constexpr std::uint64_t kSeed = 8;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " round " + std::to_string(round));
    const auto ranks = static_cast<std::uint32_t>(2 + random.below(12));
    const auto microbatches = static_cast<std::uint32_t>(ranks + random.below(200));
    const bool alike = random.below(3) == 0;
    std::vector<float> times(ranks, 1.0F);
    std::vector<MicrobatchSet> held(ranks);
    std::vector<std::uint32_t> sizes(ranks);
    std::uint32_t missing = microbatches;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      times[rank] = alike ? 1.0F : static_cast<float>(1 + random.below(30)) / 3.0F;
      sizes[rank] = static_cast<std::uint32_t>(random.below(1 + microbatches / ranks));
      held[rank] = MicrobatchSet::range(microbatches - missing, sizes[rank]);
      missing -= sizes[rank];
    }
    const auto [least, most] = std::ranges::minmax_element(times);
    if (!alike && *most <= *least * 1.2F) {
      continue;  // such speeds count as equal
    }
    EXPECT_EQ(counts(times, microbatches),
              one_by_one(times, std::vector<std::uint32_t>(ranks),
                         std::vector<std::uint32_t>(ranks, 1), microbatches - ranks));
    if (missing == microbatches) {
      continue;
    }
    std::vector<std::uint32_t> expected =
        one_by_one(times, sizes, std::vector<std::uint32_t>(ranks), missing);
    const auto sets = sets_of(held, times, microbatches);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(sets[rank].count(), sizes[rank] + expected[rank]);
    }
  }
}

TEST(FirstStepSets, EqualTheRangesIfNobodyHoldsAnything) {
  const auto sets = sets_of({{}, {}}, {0, 0}, 5);
  EXPECT_EQ(sets[0], MicrobatchSet::range(0, 3));
  EXPECT_EQ(sets[1], MicrobatchSet::range(3, 2));
}

TEST(FirstStepSets, SurvivorsKeepWhatTheyHoldAndTheMissingIsSpreadEvenly) {
  const auto sets = sets_of({MicrobatchSet::range(0, 2), MicrobatchSet::range(2, 2)}, {0, 0}, 8);
  expect_partition(sets, 8);
  EXPECT_TRUE(sets[0].contains(0) && sets[0].contains(1));
  EXPECT_TRUE(sets[1].contains(2) && sets[1].contains(3));
  EXPECT_EQ(sets[0].count(), 4u);
  EXPECT_EQ(sets[1].count(), 4u);
}

TEST(FirstStepSets, OfTwoHoldersTheFirstInRankOrderKeepsIt) {
  const auto sets = sets_of(
      {MicrobatchSet::range(0, 3), MicrobatchSet::range(2, 3), MicrobatchSet{}}, {0, 0, 0}, 5);
  EXPECT_EQ(sets[0], MicrobatchSet::range(0, 3));
  EXPECT_EQ(sets[1], MicrobatchSet::range(3, 2));
  EXPECT_TRUE(sets[2].empty());
}

// At a boundary each member has begun one microbatch, and holds it, when the view with a new member
// is made.
TEST(FirstStepSets, ANewcomerComesFirstAmongEquals) {
  const auto sets = sets_of({MicrobatchSet::range(0, 1),
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
  const auto sets = sets_of(
      {MicrobatchSet::range(0, 1), MicrobatchSet::range(1, 1), MicrobatchSet::range(2, 1), {}},
      {10, 13, 16, 0}, 4);
  expect_partition(sets, 4);
  EXPECT_EQ(sets[3], MicrobatchSet::range(3, 1));
}

TEST(FirstStepSets, ClaimsBeyondTheStepAreIgnored) {
  const auto sets = sets_of({MicrobatchSet::range(2, 40)}, {0}, 4);
  EXPECT_EQ(sets[0], MicrobatchSet::range(0, 4));
}

TEST(FirstStepSets, WhatIsMissingGoesToWhoIsDoneWithItFirst) {
  const auto sets = sets_of({MicrobatchSet::range(0, 1), MicrobatchSet::range(1, 1)}, {10, 35}, 5);
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
    expect_partition(sets_of(held, speeds, 24), 24);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << kSeed << " round " << round;
  }
}

// Four members have four microbatches each. The last member is lost when two of the other members
// hold two and one holds one.
TEST(FirstStepSets, WhoHasUnfinishedWorkKeepsItAndOnlyThatOfTheLostMoves) {
  const std::vector<MicrobatchSet> usual = {MicrobatchSet::range(0, 4), MicrobatchSet::range(4, 4),
                                            MicrobatchSet::range(8, 4)};
  const auto sets = first_step_sets(
      {MicrobatchSet::range(0, 2), MicrobatchSet::range(4, 1), MicrobatchSet::range(8, 2)}, usual,
      {0, 0, 0}, 16);
  expect_partition(sets, 16);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(usual[rank].minus(sets[rank]).empty()) << rank;
  }
}

TEST(FirstStepSets, WhoIsFarBehindGivesUpItsLastOnes) {
  const std::vector<MicrobatchSet> usual = {MicrobatchSet::range(0, 4), MicrobatchSet::range(4, 4)};
  const auto sets = first_step_sets({MicrobatchSet::range(0, 4), {}}, usual, {0, 0}, 8);
  expect_partition(sets, 8);
  EXPECT_EQ(sets[1], MicrobatchSet::range(4, 2));
}

TEST(FirstStepSets, HowMuchAMemberComputesDoesNotDependOnWhatIsUsual) {
  constexpr std::uint64_t kSeed = 6;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 500; ++round) {
    const std::size_t ranks = 1 + random.below(8);
    std::vector<MicrobatchSet> held(ranks);
    std::vector<MicrobatchSet> usual(ranks);
    std::vector<float> speeds(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      speeds[rank] = static_cast<float>(random.below(5));
      for (std::uint64_t i = 0; i < random.below(10); ++i) {
        held[rank].add(static_cast<std::uint32_t>(random.below(24)));
        usual[rank].add(static_cast<std::uint32_t>(random.below(32)));
      }
    }
    const auto sets = first_step_sets(held, usual, speeds, 24);
    const auto others = sets_of(held, speeds, 24);
    expect_partition(sets, 24);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(sets[rank].count(), others[rank].count()) << "seed " << kSeed << " round " << round;
    }
  }
}

}  // namespace
}  // namespace mayfly::elastic
