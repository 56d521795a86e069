#include "engine/reduction/bucket_tuner.hpp"

#include <gtest/gtest.h>

#include <map>

namespace mayfly::engine {
namespace {

/// Commits steps until the tuner has decided; returns their number. `cost`: the microseconds of a
/// step by bucket size.
std::uint32_t settle(BucketTuner& tuner, const std::map<std::size_t, std::uint32_t>& cost,
                     std::uint32_t slow_every = 0) {
  std::uint32_t before = 0;
  std::uint32_t steps = 0;
  while (!tuner.decided()) {
    const std::uint32_t took = cost.at(tuner.elements());
    tuner.step_committed(before);
    ++steps;
    before = slow_every > 0 && steps % slow_every == 0 ? 50 * took : took;
  }
  return steps;
}

TEST(BucketTuner, FindsTheFastestSize) {
  for (const std::size_t fastest : {1U, 2U, 3U, 4U}) {
    std::map<std::size_t, std::uint32_t> cost = {{1, 900}, {2, 900}, {3, 900}, {4, 900}};
    cost[fastest] = 800;
    BucketTuner tuner({1, 2, 3, 4});
    EXPECT_EQ(settle(tuner, cost), 4 * BucketTuner::kRun * BucketTuner::kTurns);
    EXPECT_EQ(tuner.elements(), fastest);
    EXPECT_EQ(tuner.typical_us(), 800U);
  }
}

TEST(BucketTuner, AStepThatTookLongForAnotherReasonDoesNotDecide) {
  BucketTuner tuner({1, 2, 3});
  (void)settle(tuner, {{1, 900}, {2, 800}, {3, 850}}, 7);
  EXPECT_EQ(tuner.elements(), 2U);
}

TEST(BucketTuner, OneSizeIsDecidedFromTheStart) {
  BucketTuner tuner({7});
  EXPECT_TRUE(tuner.decided());
  EXPECT_EQ(tuner.elements(), 7U);
  tuner.step_committed(100);
  EXPECT_EQ(tuner.elements(), 7U);
}

TEST(BucketTuner, WithoutAnyTimeTheFirstSizeStays) {
  BucketTuner tuner({5, 6});
  while (!tuner.decided()) {
    tuner.step_committed(0);
  }
  EXPECT_EQ(tuner.elements(), 5U);
}

TEST(BucketTuner, AMemberThatGetsTheContentGoesOnAlike) {
  BucketTuner source({1, 2, 3});
  for (std::uint32_t step = 0; step < 17; ++step) {
    source.step_committed(1000 + 100 * step);
  }
  Bytes packed(source.packed_size());
  source.pack(packed);
  BucketTuner joiner({1, 2, 3});
  ASSERT_TRUE(joiner.unpack(packed).ok());
  for (std::uint32_t step = 17; step < 50; ++step) {
    EXPECT_EQ(joiner.elements(), source.elements());
    EXPECT_EQ(joiner.decided(), source.decided());
    source.step_committed(3000 - 40 * step);
    joiner.step_committed(3000 - 40 * step);
  }
}

TEST(BucketTuner, RefusesContentThatIsNotItsOwn) {
  const BucketTuner three({1, 2, 3});
  Bytes packed(three.packed_size());
  three.pack(packed);
  BucketTuner two({1, 2});
  EXPECT_EQ(two.unpack(packed).error().code, Errc::kCorrupt);
  packed[0] = std::byte{255};
  BucketTuner other({1, 2, 3});
  EXPECT_EQ(other.unpack(packed).error().code, Errc::kCorrupt);
}

TEST(BucketTuner, RefusesAChoiceThatWasMadeBeforeAllSizesWereTried) {
  BucketTuner three({1, 2, 3});
  three.step_committed(0);
  Bytes packed(three.packed_size());
  three.pack(packed);
  BucketTuner joiner({1, 2, 3});
  ASSERT_TRUE(joiner.unpack(packed).ok());
  packed[sizeof(std::uint32_t)] = std::byte{2};  // the choice
  EXPECT_EQ(joiner.unpack(packed).error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace mayfly::engine
