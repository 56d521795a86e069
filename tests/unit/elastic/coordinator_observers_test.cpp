#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

// Workers that join a job with a large state: they observe until they have received it.

namespace mayfly::elastic {
namespace {

constexpr std::uint64_t kLarge = 1000;

using Members = std::vector<MemberId>;

CoordinatorOptions observed_options() {
  CoordinatorOptions observed_options;
  observed_options.initial_workers = 2;
  observed_options.observe_from_bytes = kLarge;
  return observed_options;
}

MemberId join(CoordinatorHarness& job, std::uint64_t committed, std::uint64_t bytes) {
  const MemberId member = job.connect();
  job.say(member, Ready{Step{committed}, bytes});
  return member;
}

/// A job in which members 1 and 2 work at step 10, which the first one has reported.
CoordinatorHarness running() {
  CoordinatorHarness job(observed_options());
  (void)join(job, 0, kLarge);
  (void)join(job, 0, kLarge);
  job.start(k1, 10);
  job.start(k2, 10);
  job.clear();
  return job;
}

void observer_stopped(CoordinatorHarness& job, MemberId member, std::uint64_t observed) {
  job.say(member, Stopped{job.view().id, Step{0}, {}, false, false, {}, "", Step{observed}});
}

/// The same job after member 3 has joined; it observes since step 12, in view 2.
CoordinatorHarness observed() {
  CoordinatorHarness job = running();
  (void)join(job, 0, kLarge);
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  job.start(k1, 13);
  job.start(k2, 13);
  job.say(k3, Formed{job.view().id});
  job.clear();
  return job;
}

const ViewMember& in_view(const CoordinatorHarness& job, MemberId member) {
  for (const ViewMember& m : job.view().members) {
    if (m.id == member) {
      return m;
    }
  }
  throw std::runtime_error("not in the view");
}

TEST(CoordinatorObservers, AJoinerWithALargeStateGetsNoWorkAndDisturbsNobodysState) {
  const CoordinatorHarness job = observed();
  EXPECT_EQ(job.view_members(), (Members{k1, k2, k3}));
  EXPECT_EQ(in_view(job, k3).observes, ViewId{2});
  EXPECT_TRUE(in_view(job, k3).first_step.empty());
  EXPECT_EQ(in_view(job, k3).count, 0U);
  EXPECT_EQ(in_view(job, k1).count + in_view(job, k2).count, 8U);
  EXPECT_FALSE(job.view().anyone_behind());
  EXPECT_EQ(donors_of(job.view()), (std::vector<Rank>{Rank{0}, Rank{1}}));
}

TEST(CoordinatorObservers, ASmallStateIsSentAtTheBoundary) {
  CoordinatorHarness job = running();
  (void)join(job, 0, kLarge - 1);
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  EXPECT_FALSE(job.view().has_observers());
  EXPECT_TRUE(job.view().anyone_behind());
  EXPECT_GT(in_view(job, k3).count, 0U);
}

TEST(CoordinatorObservers, AJoinerThatHasTheStateWorksAtOnce) {
  CoordinatorHarness job = running();
  (void)join(job, 12, kLarge);
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  EXPECT_FALSE(job.view().has_observers());
  EXPECT_FALSE(job.view().anyone_behind());
}

TEST(CoordinatorObservers, OneThatCaughtUpStartsAtTheNextBoundary) {
  CoordinatorHarness job = observed();
  job.say(k3, CaughtUp{job.view().id, Step{20}});
  ASSERT_EQ(job.sent<Stop>(k1).size(), 1U);
  EXPECT_TRUE(job.sent<Stop>(k1)[0].at_boundary);
  job.stopped(k1, 22);
  job.stopped(k2, 22);
  job.stopped(k3, 22);
  EXPECT_EQ(job.view().id, ViewId{3});
  EXPECT_FALSE(job.view().has_observers());
  EXPECT_FALSE(job.view().anyone_behind());
  EXPECT_GT(in_view(job, k3).count, 0U);
}

TEST(CoordinatorObservers, CaughtUpOfAnotherViewOrAWorkerMeansNothing) {
  CoordinatorHarness job = observed();
  job.say(k3, CaughtUp{ViewId{1}, Step{20}});
  job.say(k1, CaughtUp{job.view().id, Step{20}});
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
}

TEST(CoordinatorObservers, AChangeOfTheOthersDoesNotStartTheCopyAgain) {
  CoordinatorHarness job = observed();
  (void)join(job, 0, kLarge);
  job.stopped(k1, 15);
  job.stopped(k2, 15);
  observer_stopped(job, k3, 15);
  EXPECT_EQ(in_view(job, k3).observes, ViewId{2});
  EXPECT_EQ(in_view(job, k4).observes, ViewId{3});
}

TEST(CoordinatorObservers, ALostDonorStartsTheCopyAgain) {
  CoordinatorHarness job = observed();
  job.give(coordinator_event::SentinelReport{k2, "died"});
  job.stopped(k1, 15);
  observer_stopped(job, k3, 15);
  EXPECT_EQ(job.view_members(), (Members{k1, k3}));
  EXPECT_EQ(in_view(job, k3).observes, ViewId{3});
  EXPECT_EQ(in_view(job, k1).count, 8U);
}

TEST(CoordinatorObservers, AMissingSumStartsTheCopyAgain) {
  CoordinatorHarness job = observed();
  (void)join(job, 0, kLarge);
  job.stopped(k1, 15);
  job.stopped(k2, 15);
  observer_stopped(job, k3, 14);
  EXPECT_EQ(in_view(job, k3).observes, ViewId{3});
}

TEST(CoordinatorObservers, ALostObserverLeavesTheOthersAsTheyWere) {
  CoordinatorHarness job = observed();
  job.give(coordinator_event::SentinelReport{k3, "died"});
  job.stopped(k1, 15, MicrobatchSet::range(0, 4));
  job.stopped(k2, 15, MicrobatchSet::range(4, 3));
  EXPECT_EQ(job.view_members(), (Members{k1, k2}));
  EXPECT_EQ(in_view(job, k1).first_step.count() + in_view(job, k2).first_step.count(), 8U);
}

TEST(CoordinatorObservers, AMemberThatMissedAStepMakesAllWaitForTheState) {
  CoordinatorHarness job = observed();
  job.failed(k1, 15);
  job.stopped(k2, 14);
  observer_stopped(job, k3, 15);
  EXPECT_FALSE(job.view().has_observers());
  EXPECT_TRUE(job.view().anyone_behind());
  EXPECT_EQ(job.view().source, Rank{0});
}

TEST(CoordinatorObservers, TheLastWorkerStaysUntilAnObserverHasTheState) {
  CoordinatorHarness job = observed();
  job.give(coordinator_event::SentinelReport{k2, "died"});
  job.stopped(k1, 15);
  observer_stopped(job, k3, 15);
  job.start(k1, 16);
  job.clear();
  job.say(k1, LeaveRequest{"notice"});
  EXPECT_TRUE(job.noted("leave_deferred"));
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
  job.say(k3, CaughtUp{job.view().id, Step{18}});
  ASSERT_EQ(job.sent<Stop>(k1).size(), 1U);
  job.stopped(k1, 18);
  job.stopped(k3, 18);
  EXPECT_EQ(job.view_members(), (Members{k3}));
  EXPECT_EQ(job.sent<Dismiss>(k1).size(), 1U);
}

TEST(CoordinatorObservers, SilenceOfTheLastWorkerIsBorneLonger) {
  CoordinatorHarness job = observed();
  job.give(coordinator_event::SentinelReport{k2, "died"});
  job.stopped(k1, 15);
  observer_stopped(job, k3, 15);
  job.pass(seconds(2), {k3});
  EXPECT_EQ(job.view_members(), (Members{k1, k3}));
  EXPECT_FALSE(std::any_of(job.effects.begin(), job.effects.end(), [](const auto& effect) {
    const auto* note = std::get_if<coordinator_effect::Note>(&effect);
    return note != nullptr && note->kind == "lost" && note->member == k1;
  }));
}

TEST(CoordinatorObservers, ThoseThatArriveTogetherStartTogether) {
  CoordinatorHarness job = running();
  (void)join(job, 0, kLarge);
  (void)join(job, 0, kLarge);  // while the members stop: one boundary for both
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  ASSERT_EQ(job.view_members(), (Members{k1, k2, k3, k4}));
  job.clear();
  job.say(k3, CaughtUp{job.view().id, Step{20}});
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
  job.say(k4, CaughtUp{job.view().id, Step{20}});
  EXPECT_EQ(job.sent<Stop>(k1).size(), 1U);
}

TEST(CoordinatorObservers, NobodyWaitsLongForASlowOne) {
  CoordinatorHarness job = running();
  (void)join(job, 0, kLarge);
  (void)join(job, 0, kLarge);
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  job.clear();
  job.say(k3, CaughtUp{job.view().id, Step{20}});
  job.pass(observed_options().start_together + milliseconds(20), {k1, k2, k3, k4});
  EXPECT_EQ(job.sent<Stop>(k1).size(), 1U);
}

TEST(CoordinatorObservers, IfOnlyObserversAreLeftTheyJoinAgainToBeOfferedACheckpoint) {
  CoordinatorHarness job = observed();
  job.give(coordinator_event::SentinelReport{k1, "died"});
  job.give(coordinator_event::SentinelReport{k2, "died"});
  observer_stopped(job, k3, 15);
  ASSERT_EQ(job.sent<Dismiss>(k3).size(), 1U);
  EXPECT_TRUE(job.sent<Dismiss>(k3)[0].may_rejoin);
  EXPECT_FALSE(job.noted("restarted"));
  const MemberId again = join(job, 10, kLarge);
  EXPECT_TRUE(job.noted("restarted"));
  EXPECT_EQ(job.view_members(), (Members{again}));
  EXPECT_EQ(job.view().committed, Step{10});
}

TEST(CoordinatorObservers, WhoReceivedASmallStateWhenTheLastHolderWentJoinsAgain) {
  CoordinatorHarness job = running();
  const MemberId behind = join(job, 0, kLarge - 1);
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  job.say(behind, Formed{job.view().id});
  job.give(coordinator_event::SentinelReport{k1, "died"});
  job.give(coordinator_event::SentinelReport{k2, "died"});
  job.stopped(behind, 0);
  ASSERT_EQ(job.sent<Dismiss>(behind).size(), 1U);
  EXPECT_TRUE(job.sent<Dismiss>(behind)[0].may_rejoin);
}

TEST(CoordinatorObservers, WhoLoadedWhileTheLastHolderWentJoinsAgain) {
  CoordinatorHarness job = running();
  const MemberId loading = job.connect();
  job.give(coordinator_event::SentinelReport{k1, "died"});
  job.give(coordinator_event::SentinelReport{k2, "died"});
  job.say(loading, Ready{Step{0}, kLarge});
  ASSERT_EQ(job.sent<Dismiss>(loading).size(), 1U);
  EXPECT_TRUE(job.sent<Dismiss>(loading)[0].may_rejoin);
  const MemberId first = join(job, 0, kLarge);  // there was no checkpoint: the job starts over
  EXPECT_EQ(job.view_members(), (Members{first}));
  EXPECT_EQ(job.view().committed, Step{0});
}

TEST(CoordinatorObservers, TheJobEndsWithoutWaitingForThem) {
  CoordinatorHarness job = observed();
  job.finished(k1, 60);
  job.say(k3, Stopped{job.view().id, Step{0}, {}, true, false, {}, "", Step{60}});
  job.finished(k2, 60);
  EXPECT_EQ(job.outcome(), Outcome::kDone);
  EXPECT_TRUE(job.sent<Dismiss>(k1).at(0).write_checkpoint);
  EXPECT_FALSE(job.sent<Dismiss>(k3).at(0).write_checkpoint);
}

TEST(CoordinatorObservers, OneThatClaimsStepsNobodyHasIsEvicted) {
  CoordinatorHarness job = observed();
  job.give(coordinator_event::SentinelReport{k2, "died"});
  job.stopped(k1, 15);
  job.stopped(k3, 17);
  EXPECT_EQ(job.view_members(), (Members{k1}));
  EXPECT_EQ(job.view().committed, Step{15});
  EXPECT_TRUE(job.noted("evicted"));
}

TEST(CoordinatorObservers, OneThatCaughtUpMayBeTheOnlyOneToCommit) {
  CoordinatorHarness job = observed();
  job.give(coordinator_event::SentinelReport{k2, "died"});
  job.stopped(k1, 15);
  job.stopped(k3, 16);
  EXPECT_EQ(job.view_members(), (Members{k1, k3}));
  EXPECT_EQ(job.view().committed, Step{16});
  EXPECT_EQ(job.view().source, Rank{1});
  EXPECT_TRUE(job.view().anyone_behind());
}

TEST(CoordinatorObservers, AJoinIsReportedWithItsInstants) {
  CoordinatorHarness job = observed();
  const auto later = [&job] { job.now = job.now + milliseconds(5); };
  later();
  job.say(k3, CaughtUp{job.view().id, Step{20}});
  later();
  job.stopped(k1, 22);
  job.stopped(k2, 22);
  job.stopped(k3, 22);
  job.say(k3, Synced{job.view().id});
  later();
  job.start(k1, 23);
  job.start(k3, 23);
  const auto joins = job.all<coordinator_effect::JoinDone>();
  ASSERT_EQ(joins.size(), 1U);
  const Join& join = joins[0].join;
  EXPECT_EQ(join.member, k3);
  EXPECT_EQ(join.admitted_after, Step{12});
  EXPECT_EQ(join.started_after, Step{22});
  EXPECT_EQ(join.snapshots, 1U);
  EXPECT_EQ(join.caught_up - join.admitted, milliseconds(5));
  EXPECT_EQ(join.promoted - join.caught_up, milliseconds(5));
  EXPECT_EQ(join.step - join.promoted, milliseconds(5));
}

TEST(CoordinatorObservers, AJoinWithASmallStateIsReportedToo) {
  CoordinatorHarness job = running();
  (void)join(job, 0, 0);
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  job.start(k3, 13);
  const auto joins = job.all<coordinator_effect::JoinDone>();
  ASSERT_EQ(joins.size(), 1U);
  EXPECT_EQ(joins[0].join.snapshots, 0U);
  EXPECT_EQ(joins[0].join.admitted, joins[0].join.promoted);
}

TEST(CoordinatorObservers, ADonorThatLeavesStartsTheCopyAgain) {
  CoordinatorHarness job = observed();
  job.give(coordinator_event::DrainAsked{k2, "operator"});
  job.stopped(k1, 15);
  job.stopped(k2, 15);
  observer_stopped(job, k3, 15);
  ASSERT_EQ(job.view_members(), (Members{k1, k3}));
  EXPECT_EQ(in_view(job, k3).observes, ViewId{3});
}

TEST(CoordinatorObservers, OneThatCaughtUpIsBehindAgainWhenItsCopyIsStartedAgain) {
  CoordinatorHarness job = observed();
  job.say(k3, CaughtUp{job.view().id, Step{14}});
  job.give(coordinator_event::SentinelReport{k2, "died"});
  job.stopped(k1, 15);
  observer_stopped(job, k3, 14);
  ASSERT_EQ(in_view(job, k3).observes, ViewId{3});
  job.start(k1, 16);
  job.say(k3, Formed{job.view().id});
  job.clear();
  job.pass(seconds(1), {k1, k3});
  EXPECT_TRUE(job.sent<Stop>(k1).empty()) << "it has not said that it caught up in this view";
  job.say(k3, CaughtUp{job.view().id, Step{20}});
  EXPECT_EQ(job.sent<Stop>(k1).size(), 1U);
}

TEST(CoordinatorObservers, OneThatCaughtUpWaitsForTheOthersExactlyAsLongAsIsAllowed) {
  CoordinatorHarness job = running();
  (void)join(job, 0, kLarge);
  (void)join(job, 0, kLarge);
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  job.clear();
  job.say(k3, CaughtUp{job.view().id, Step{20}});
  job.pass(observed_options().start_together - milliseconds(10), {k1, k2, k3, k4});
  job.say(k3, CaughtUp{job.view().id, Step{21}});  // once more, which is no news
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
  job.pass(milliseconds(10), {k1, k2, k3, k4});
  EXPECT_EQ(job.sent<Stop>(k1).size(), 1U);
}

}  // namespace
}  // namespace mayfly::elastic
