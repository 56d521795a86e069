#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

// From one view to the next: how long a coordinator waits until all members have stopped, and which
// reports about the old view count in the new one.

namespace mayfly::elastic {
namespace {

constexpr Duration kStopTimeout = seconds(10);

using Members = std::vector<MemberId>;

CoordinatorHarness job_of_three() {
  CoordinatorOptions options;
  options.stop_timeout = kStopTimeout;
  return running_job(3, 10, options);
}

TEST(CoordinatorStopDeadline, OfAnImmediateStopBeginsWhenTheMembersAreTold) {
  CoordinatorHarness job = job_of_three();
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  job.pass(seconds(6), {k1, k2});
  job.stopped(k1, 10);
  job.pass(kStopTimeout - seconds(6) - milliseconds(10), {k1, k2});
  EXPECT_FALSE(job.noted("evicted"));
  job.pass(milliseconds(10), {k1, k2});
  EXPECT_TRUE(job.noted("evicted"));
  EXPECT_EQ(job.sent<Dismiss>(k2).at(0).reason, DismissReason::kEvicted);
  EXPECT_EQ(job.view_members(), (Members{k1}));
}

TEST(CoordinatorStopDeadline, OfAnImmediateStopWithinAPlannedOneIsItsOwn) {
  CoordinatorHarness job = job_of_three();
  job.give(coordinator_event::DrainAsked{k3, "operator"});
  job.stopped(k1, 11);
  job.pass(seconds(8), {k1, k2, k3});
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  ASSERT_FALSE(job.sent<Stop>(k2).back().at_boundary);
  job.pass(kStopTimeout - milliseconds(10), {k1, k2});
  EXPECT_FALSE(job.noted("evicted")) << "it was told to stop at once two seconds too late";
  job.pass(milliseconds(10), {k1, k2});
  EXPECT_TRUE(job.noted("evicted"));
  EXPECT_EQ(job.view_members(), (Members{k1}));
}

TEST(CoordinatorStopDeadline, WhoDoesNotComeToTheBoundaryIsToldToStopAtOnceAndHasItsTime) {
  CoordinatorHarness job = job_of_three();
  job.give(coordinator_event::DrainAsked{k3, "operator"});
  job.pass(3 * kStopTimeout, {k1, k2, k3});  // a step may take long
  job.stopped(k1, 11);
  job.pass(kStopTimeout - milliseconds(10), {k1, k2, k3});
  EXPECT_EQ(job.sent<Stop>(k2).size(), 1U);
  job.pass(milliseconds(10), {k1, k2, k3});
  ASSERT_EQ(job.sent<Stop>(k2).size(), 2U);
  EXPECT_FALSE(job.sent<Stop>(k2)[1].at_boundary);
  EXPECT_EQ(job.sent<Stop>(k1).size(), 1U) << "it has stopped";
  job.stopped(k3, 11);
  job.pass(kStopTimeout - milliseconds(10), {k1, k2, k3});
  EXPECT_FALSE(job.noted("evicted"));
  job.pass(milliseconds(10), {k1, k2, k3});
  EXPECT_EQ(job.view_members(), (Members{k1}));
}

/// The members' messages of that time are read after the first tick. Members used to be evicted in
/// that tick, and a commit was undone with them.
TEST(CoordinatorStopDeadline, DoesNotPassWhileTheCoordinatorItselfStandsStill) {
  CoordinatorHarness job = job_of_three();
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  job.pass(seconds(1), {k1, k2});
  job.now = job.now + 3 * kStopTimeout;
  job.give(coordinator_event::Tick{});
  EXPECT_FALSE(job.noted("evicted"));
  job.stopped(k1, 11);
  job.pass(kStopTimeout - seconds(1) - milliseconds(10), {k1, k2});
  EXPECT_FALSE(job.noted("evicted"));
  job.pass(milliseconds(10), {k1, k2});
  EXPECT_TRUE(job.noted("evicted")) << "the rest of its time is all that it gets";
  EXPECT_EQ(job.view_members(), (Members{k1}));
}

TEST(CoordinatorStopDeadline, OfWhoIsToldAfterAStandstillOfTheCoordinatorIsTheUsualOne) {
  CoordinatorHarness job = job_of_three();
  job.now = job.now + seconds(3);
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  job.give(coordinator_event::Tick{});
  job.pass(kStopTimeout - milliseconds(10), {k1, k2});
  EXPECT_FALSE(job.noted("evicted"));
  job.pass(milliseconds(10), {k1, k2});
  EXPECT_TRUE(job.noted("evicted"));
}

TEST(CoordinatorWaiting, TakesNoTimeWhileTheCoordinatorItselfStandsStill) {
  CoordinatorOptions options;
  options.min_workers = 2;
  options.min_workers_timeout = seconds(5);
  CoordinatorHarness job = running_job(2, 10, options);
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  job.stopped(k1, 10);
  job.now = job.now + seconds(60);
  job.give(coordinator_event::Tick{});
  EXPECT_FALSE(job.outcome()) << "a worker that came meanwhile is heard of only now";
  (void)job.join();
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
}

/// The deadline of a completed change does not affect the next one.
TEST(CoordinatorStopDeadline, OfTheNextChangeBeginsWithThat) {
  CoordinatorHarness job = job_of_three();
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  job.pass(seconds(8), {k1, k2});
  job.stopped(k1, 10);
  job.stopped(k2, 10);
  job.start(k1, 11);
  job.start(k2, 11);
  job.clear();
  const MemberId joiner = job.join();
  job.pass(2 * kStopTimeout, {k1, k2, joiner});
  ASSERT_EQ(job.sent<Stop>(k1).size(), 1U);
  EXPECT_TRUE(job.sent<Stop>(k1)[0].at_boundary);
  EXPECT_FALSE(job.noted("evicted"));
}

TEST(CoordinatorStopDeadline, MakesNoFailureOfAPlannedChange) {
  CoordinatorHarness job = job_of_three();
  job.clear();
  const MemberId joiner = job.join();
  job.stopped(k1, 10);
  job.stopped(k2, 10);
  job.pass(kStopTimeout, {k1, k2, k3, joiner});  // the third one's step is a long one
  ASSERT_EQ(job.sent<Stop>(k3).size(), 2U);
  EXPECT_FALSE(job.sent<Stop>(k3)[1].at_boundary);
  job.stopped(k3, 10);
  for (const MemberId id : {k1, k2, k3, joiner}) {
    job.start(id, 11);
  }
  const auto done = job.all<coordinator_effect::RecoveryDone>();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].recovery.cause, ChangeCause::kJoin);
}

TEST(CoordinatorNextView, SumsOfAMemberThatIsBehindDoNotCount) {
  CoordinatorHarness job = job_of_three();
  ASSERT_EQ(job.view().members[1].first, 3U);
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  job.stopped(k1, 11);
  job.stopped(k2, 10, MicrobatchSet::range(3, 3));  // for the step that member 1 has committed
  ASSERT_EQ(job.view().committed, Step{11});
  ASSERT_EQ(job.view().behind, (std::vector<Rank>{Rank{1}}));
  for (const ViewMember& member : job.view().members) {
    EXPECT_EQ(member.first_step, MicrobatchSet::range(member.first, member.count));
    EXPECT_EQ(member.count, 4U);
  }
}

TEST(CoordinatorNextView, SumsOfMembersThatHaveTheStateCountAlsoIfAnotherIsBehind) {
  CoordinatorHarness job = job_of_three();
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  job.stopped(k1, 10);
  job.stopped(k2, 11, MicrobatchSet::range(3, 2));
  ASSERT_EQ(job.view().source, Rank{1});
  const MicrobatchSet& kept = job.view().members[1].first_step;
  EXPECT_TRUE(kept.contains(3) && kept.contains(4));
  EXPECT_EQ(kept.count(), 2U + 3) << "the six that are missing are shared evenly";
  EXPECT_EQ(job.view().members[0].first_step.count(), 3U);
}

TEST(CoordinatorLeavers, OneThatHasNoPartYetMayGoAlsoIfNobodyElseIsThere) {
  CoordinatorOptions options;
  options.initial_workers = 2;
  CoordinatorHarness job(options);
  const MemberId ready = job.join();
  job.say(ready, LeaveRequest{"notice"});
  ASSERT_EQ(job.sent<Dismiss>(ready).size(), 1U);
  EXPECT_EQ(job.sent<Dismiss>(ready)[0].reason, DismissReason::kDrained);
  const MemberId loading = job.connect();
  job.say(loading, LeaveRequest{"notice"});
  EXPECT_EQ(job.sent<Dismiss>(loading).size(), 1U);
}

TEST(CoordinatorLeavers, MayGoWhileTheJobIsPausedUnlessTheyAloneHoldItsState) {
  CoordinatorHarness job = job_of_three();
  job.give(coordinator_event::PauseAsked{true});
  job.stopped(k1, 12);
  job.stopped(k2, 11);
  job.stopped(k3, 11);
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kPaused);
  job.say(k2, LeaveRequest{"notice"});
  EXPECT_EQ(job.sent<Dismiss>(k2).size(), 1U);
  job.say(k1, LeaveRequest{"notice"});
  EXPECT_TRUE(job.sent<Dismiss>(k1).empty()) << "only it has the last step";
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kPaused);
}

TEST(CoordinatorRecovery, BeginsWithTheLossAlsoIfTheMembersWereStoppingAlready) {
  CoordinatorHarness job = job_of_three();
  job.give(coordinator_event::DrainAsked{k3, "operator"});
  job.pass(milliseconds(50), {k1, k2, k3});
  const Instant lost = job.now;
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  job.pass(milliseconds(20), {k1, k2});
  const Instant stopped = job.now;
  job.stopped(k1, 10);
  job.stopped(k2, 10);
  job.start(k1, 11);
  EXPECT_TRUE(job.all<coordinator_effect::RecoveryDone>().empty());
  job.start(k2, 11);
  const auto done = job.all<coordinator_effect::RecoveryDone>();
  ASSERT_EQ(done.size(), 1U);
  const Recovery& recovery = done[0].recovery;
  EXPECT_EQ(recovery.cause, ChangeCause::kLost);
  EXPECT_EQ(recovery.detected, lost);
  EXPECT_EQ(recovery.told, lost);
  EXPECT_EQ(recovery.stopped, stopped);
  EXPECT_EQ(recovery.old_view, ViewId{1});
  EXPECT_EQ(recovery.new_view, ViewId{2});
}

TEST(CoordinatorRecovery, TwoLossesBeforeEverybodyHasStartedAreOneLongOne) {
  CoordinatorHarness job = job_of_three();
  const Instant first = job.now;
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  job.stopped(k1, 10);
  job.stopped(k2, 10);
  job.say(k1, Formed{job.view().id});
  job.pass(milliseconds(30), {k1, k2});
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  job.stopped(k1, 10);
  job.start(k1, 11);
  const auto done = job.all<coordinator_effect::RecoveryDone>();
  ASSERT_EQ(done.size(), 1U);
  const Recovery& recovery = done[0].recovery;
  EXPECT_EQ(recovery.detected, first);
  EXPECT_EQ(recovery.members, (Members{k3, k2}));
  EXPECT_EQ(recovery.detail, "killed");
  EXPECT_EQ(recovery.old_view, ViewId{1});
  EXPECT_EQ(recovery.new_view, ViewId{3});
}

TEST(CoordinatorRecovery, OfALossAfterEverybodyHasStartedIsItsOwn) {
  CoordinatorHarness job = job_of_three();
  job.give(coordinator_event::ConnectionLost{k3, "killed"});
  job.stopped(k1, 10);
  job.stopped(k2, 10);
  job.start(k1, 11);
  job.start(k2, 11);
  job.clear();
  job.pass(milliseconds(30), {k1, k2});
  const Instant second = job.now;
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  job.stopped(k1, 11);
  job.start(k1, 12);
  const auto done = job.all<coordinator_effect::RecoveryDone>();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].recovery.detected, second);
  EXPECT_EQ(done[0].recovery.members, Members{k2});
  EXPECT_EQ(done[0].recovery.detail, "reset");
  EXPECT_EQ(done[0].recovery.old_view, ViewId{2});
}

}  // namespace
}  // namespace mayfly::elastic
