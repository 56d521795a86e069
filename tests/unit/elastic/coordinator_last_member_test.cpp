#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

// A suspicion may be wrong, and the last member has the job's state and delays no other member. So
// it is not evicted.

namespace mayfly::elastic {
namespace {

using Members = std::vector<MemberId>;

TEST(CoordinatorLastMember, IsGivenUpOnlyAfterALongSilence) {
  CoordinatorHarness job = running_job(1);
  job.pass(seconds(9), {});
  EXPECT_FALSE(job.noted("lost"));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
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
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
}

TEST(CoordinatorLastMember, OfTwoSilentOnesOneGoesOn) {
  CoordinatorHarness job = running_job(2);
  job.pass(seconds(9), {});
  EXPECT_EQ(job.coordinator.members().size(), 1u);
}

// Both servers of a job may be taken away at nearly the same time, one of them without a notice.
TEST(CoordinatorLastMember, WhoHasToGoSoonIsNotKeptWaitingForASilentOne) {
  CoordinatorHarness job = running_job(2);
  job.say(k1, LeaveRequest{"notice"});
  job.stopped(k1, 10);
  job.pass(seconds(1), {k1});
  EXPECT_TRUE(job.noted("lost"));
  EXPECT_EQ(job.view_members(), (Members{k1}));
}

TEST(CoordinatorLastMember, ASilentJoinerIsNotTakenInForOneThatHasToGo) {
  CoordinatorOptions options;
  options.view_max = 1;
  CoordinatorHarness job = running_job(1, 10, options);
  (void)job.join(10);
  job.pass(milliseconds(200), {k1});
  job.say(k1, LeaveRequest{"notice"});
  job.pass(milliseconds(400), {k1});
  job.stopped(k1, 11);
  EXPECT_TRUE(job.noted("lost"));
  EXPECT_EQ(job.view_members(), (Members{k1}));
}

}  // namespace
}  // namespace mayfly::elastic
