#include "engine/membership/worker_join.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

Instant at(std::int64_t s) {
  return Instant{} + seconds(s);
}

TEST(FirstAnswerTimeout, IsAMinuteOrTheTimeoutForTheCoordinatorIfThatIsShorter) {
  JobConfig config;
  EXPECT_EQ(first_answer_timeout(config), seconds(60)) << "of the default, ten minutes";
  config.coordinator_timeout = 2.5;
  EXPECT_EQ(first_answer_timeout(config), milliseconds(2500));
  for (const double refused_later : {0.0, -1.0, 1e300}) {
    config.coordinator_timeout = refused_later;
    EXPECT_EQ(first_answer_timeout(config), seconds(60)) << refused_later;
  }
}

TEST(RejoinLimit, TheFirstEvictionCostsNoWait) {
  RejoinLimit limit;
  EXPECT_EQ(limit.evicted(at(100)), Duration::zero());
}

TEST(RejoinLimit, WaitsGrowAndEndWithinAMinute) {
  RejoinLimit limit;
  Duration last{-1};
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::optional<Duration> wait = limit.evicted(at(100 + i));
    ASSERT_TRUE(wait.has_value()) << i;
    EXPECT_GT(*wait, last);
    last = *wait;
  }
  EXPECT_FALSE(limit.evicted(at(110)).has_value());
}

TEST(RejoinLimit, EvictionsThatAreLongAgoAreForgotten) {
  RejoinLimit limit;
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(limit.evicted(at(100 + 61 * i)), Duration::zero()) << i;
  }
}

}  // namespace
}  // namespace mayfly::engine
