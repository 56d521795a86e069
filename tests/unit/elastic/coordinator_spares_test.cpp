#include <gtest/gtest.h>

#include "tests/unit/elastic/resume_fixture.hpp"

// Workers beyond the largest view wait until there is a place for them.

namespace mayfly::elastic {
namespace {

using Members = std::vector<MemberId>;

/// A job with two members at step 10 and `spares` ready spares.
CoordinatorHarness running(std::uint32_t spares, std::uint32_t min_workers = 1) {
  CoordinatorOptions options;
  options.initial_workers = 2;
  options.view_max = 2;
  options.min_workers = min_workers;
  CoordinatorHarness job(options);
  for (std::uint32_t i = 0; i < 2 + spares; ++i) {
    (void)job.join();
  }
  for (const MemberId member : job.view_members()) {
    job.start(member, 10);
  }
  job.clear();
  return job;
}

/// `member` dies; the other members of the view stop after step 10.
void lose(CoordinatorHarness& job, MemberId member) {
  const Members before = job.view_members();
  job.give(coordinator_event::SentinelReport{member, "died"});
  for (const MemberId other : before) {
    if (other != member) {
      job.stopped(other, 10);
    }
  }
}

TEST(CoordinatorSpares, WaitWhileTheViewIsFull) {
  CoordinatorHarness job = running(2);
  EXPECT_EQ(job.view_members(), (Members{k1, k2}));
  job.pass(seconds(3), {k1, k2, k3, k4});
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
  EXPECT_TRUE(job.sent<NewView>(k3).empty());
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
}

TEST(CoordinatorSpares, TakeTheirPlaceAtABoundaryHoweverLongAgoTheChangeBeforeWas) {
  CoordinatorHarness job = running(2);
  lose(job, k1);
  ASSERT_EQ(job.view_members(), (Members{k2, k3}));
  job.pass(seconds(11), {k2, k3, k4});  // longer than stop_timeout
  job.give(coordinator_event::DrainAsked{k2, "operator"});
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kStopping);
  job.clear();
  job.pass(seconds(1), {k2, k3, k4});
  EXPECT_TRUE(job.sent<Stop>(k3).empty()) << "it is at work on the step before the boundary";
  EXPECT_FALSE(job.noted("evicted"));
}

TEST(CoordinatorSpares, TheFirstToHaveComeReplacesALostMember) {
  CoordinatorHarness job = running(2);
  lose(job, k1);
  EXPECT_EQ(job.view_members(), (Members{k2, k3}));
  EXPECT_EQ(job.view().committed, Step{10});
  EXPECT_EQ(job.view().source, Rank{0});
  EXPECT_TRUE(job.view().anyone_behind());
  EXPECT_TRUE(job.sent<NewView>(k4).empty());
}

TEST(CoordinatorSpares, ALostSpareChangesNothing) {
  CoordinatorHarness job = running(1);
  job.give(coordinator_event::SentinelReport{k3, "died"});
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
}

TEST(CoordinatorSpares, OnlyAsManyComeAsWereLost) {
  CoordinatorHarness job = running(2);
  lose(job, k1);
  job.clear();
  lose(job, k2);
  EXPECT_EQ(job.view_members(), (Members{k3, k4}));
}

TEST(CoordinatorSpares, ALeaverIsReplacedAtTheSameBoundary) {
  CoordinatorHarness job = running(1);
  job.give(coordinator_event::DrainAsked{k1, "drain"});
  job.stopped(k1, 11);
  job.stopped(k2, 11);
  EXPECT_EQ(job.view_members(), (Members{k2, k3}));
  EXPECT_EQ(job.sent<Dismiss>(k1).size(), 1u);
}

// A view of one whose only member leaves: the spare must get its state before it goes.
TEST(CoordinatorSpares, TheLastHolderOfTheStateStaysUntilASpareHasIt) {
  CoordinatorOptions options;
  options.view_max = 1;
  CoordinatorHarness job(options);
  EXPECT_EQ(job.join(), k1);
  EXPECT_EQ(job.join(), k2);
  job.start(k1, 10);
  job.give(coordinator_event::DrainAsked{k1, "drain"});
  job.stopped(k1, 11);
  EXPECT_EQ(job.view_members(), (Members{k1, k2}));
  job.start(k1, 12);
  job.start(k2, 12);
  job.stopped(k1, 13);
  job.stopped(k2, 13);
  EXPECT_EQ(job.view_members(), (Members{k2}));
  EXPECT_EQ(job.sent<Dismiss>(k1).size(), 1u);
}

TEST(CoordinatorSpares, ARecoveryNamesOnlyTheSpareThatCame) {
  CoordinatorHarness job = running(2);
  lose(job, k1);
  job.start(k2, 11);
  job.start(k3, 11);
  const auto done = job.all<coordinator_effect::RecoveryDone>();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].recovery.members, (Members{k1, k3}));
}

TEST(CoordinatorSpares, AreDismissedWhenTheJobIsDone) {
  CoordinatorHarness job = running(1);
  job.finished(k1, 20);
  job.finished(k2, 20);
  EXPECT_EQ(job.outcome(), Outcome::kDone);
  EXPECT_EQ(job.sent<Dismiss>(k3).size(), 1u);
}

TEST(CoordinatorSpares, CountAsWorkersThatAreNeeded) {
  CoordinatorHarness job = running(1, 2);
  lose(job, k2);
  EXPECT_EQ(job.view_members(), (Members{k1, k3}));
}

TEST(CoordinatorSpares, WhoseConsentIsNeededHasAPlaceEvenIfTheViewIsFull) {
  CoordinatorOptions options = quorum_options(true);
  options.view_max = 2;
  CoordinatorHarness standby(options);
  const View view = old_view(5, 5);
  for (const MemberId member : {k1, k2, k3}) {
    ASSERT_TRUE(join_again(standby, member, view));
  }
  standby.pass(milliseconds(2100), {k1, k2, k3});
  EXPECT_EQ(standby.view_members(), (std::vector<MemberId>{k1, k2, k3}));
}

/// The coordinator died between choosing the member and informing it (failover, seed 2935).
TEST(CoordinatorSpares, AMemberThatNeverKnewOfItsPlaceConsentsThoughThereAreSpares) {
  CoordinatorOptions options = quorum_options();
  options.view_max = 1;
  View view = old_view(1, 1, 0);
  view.members.front().id = k3;
  CoordinatorHarness job(options, log_with(view));
  for (const MemberId member : {k1, k2, k3}) {
    ASSERT_TRUE(come_back(job, member, 0));
    Resume resume;
    resume.incarnation = job.coordinator.incarnation();
    resume.phase = ResumePhase::kReady;
    job.say(member, resume);
  }
  job.pass(milliseconds(2100), {k1, k2, k3});
  EXPECT_FALSE(job.noted("no_quorum"));
  EXPECT_TRUE(job.coordinator.is_in_charge());  // and offers them the newest checkpoint
}

}  // namespace
}  // namespace mayfly::elastic
