#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

// A suspicion may be wrong. Whoever is the last one holds the job's state and stands in nobody's
// way.

namespace mayfly::elastic {
namespace {

constexpr MemberId k1{1};

TEST(CoordinatorLastMember, IsGivenUpOnlyAfterALongSilence) {
  CoordinatorHarness job = running_job(1);
  job.pass(seconds(9), {});
  EXPECT_FALSE(job.noted("lost"));
  EXPECT_EQ(job.coordinator.phase(), "running");
  job.pass(seconds(2), {});
  EXPECT_TRUE(job.noted("lost"));
}

TEST(CoordinatorLastMember, IsLostOnTheWordOfItsSentinel) {
  CoordinatorHarness job = running_job(1);
  job.give(coordinator_event::SentinelReport{k1, "the worker's process died"});
  EXPECT_TRUE(job.noted("lost"));
}

TEST(CoordinatorLastMember, IsLostWhenItsConnectionBreaks) {
  CoordinatorHarness job = running_job(1);
  job.give(coordinator_event::ConnectionLost{k1, "reset"});
  EXPECT_TRUE(job.noted("lost"));
  EXPECT_EQ(job.coordinator.phase(), "waiting");
}

TEST(CoordinatorLastMember, OfTwoSilentOnesOneGoesOn) {
  CoordinatorHarness job = running_job(2);
  job.pass(seconds(9), {});
  EXPECT_EQ(job.coordinator.members().size(), 1u);
}

}  // namespace
}  // namespace mayfly::elastic
