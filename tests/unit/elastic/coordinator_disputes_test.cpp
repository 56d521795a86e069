#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

// Members of a view found that their states or results differ.

namespace mayfly::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CoordinatorOptions disputed_options(std::uint32_t workers) {
  CoordinatorOptions disputed_options;
  disputed_options.microbatches = 6;
  disputed_options.initial_workers = workers;
  disputed_options.state_part_names = {"conv1.weight", "conv1.weight (momentum)",
                                       "bn1.running_mean"};
  return disputed_options;
}

void differs(CoordinatorHarness& job, MemberId member, std::uint64_t committed,
             std::vector<std::uint64_t> hashes, MicrobatchSet held = {},
             Dispute dispute = Dispute::kState, bool unsound = false) {
  Stopped stopped;
  stopped.view = job.view().id;
  stopped.committed = Step{committed};
  stopped.held = std::move(held);
  stopped.failed = true;
  stopped.dispute = dispute;
  stopped.hashes = std::move(hashes);
  stopped.contradicts_itself = unsound;
  job.say(member, stopped);
}

std::string detail_of(const CoordinatorHarness& job, const std::string& kind) {
  for (const auto& note : job.all<coordinator_effect::Note>()) {
    if (note.kind == kind) {
      return note.detail;
    }
  }
  return "no such note";
}

CoordinatorHarness running(std::uint32_t workers, std::uint64_t committed = 4) {
  CoordinatorHarness job(disputed_options(workers));
  for (std::uint32_t i = 0; i < workers; ++i) {
    job.join();
  }
  for (const MemberId member : job.view_members()) {
    job.start(member, committed);
  }
  return job;
}

TEST(CoordinatorDisputes, TheOddOneGoesAndTheOthersKeepTheirSums) {
  CoordinatorHarness job = running(3);
  differs(job, k1, 4, {1, 2, 3}, MicrobatchSet::range(0, 2));
  differs(job, k2, 4, {1, 9, 3}, MicrobatchSet::range(2, 2));
  differs(job, k3, 4, {1, 2, 3}, MicrobatchSet::range(4, 2));
  EXPECT_THAT(job.view_members(), ElementsAre(k1, k3));
  EXPECT_EQ(value(job.view().committed), 4U);
  EXPECT_TRUE(job.view().members[0].first_step.contains(0));
  EXPECT_TRUE(job.view().members[1].first_step.contains(5));
  ASSERT_EQ(job.sent<Dismiss>(k2).size(), 1U);
  EXPECT_EQ(job.sent<Dismiss>(k2)[0].reason, DismissReason::kCorrupted);
  EXPECT_THAT(detail_of(job, "corrupted"), HasSubstr("before step 5"));
  EXPECT_THAT(detail_of(job, "corrupted"), HasSubstr("conv1.weight (momentum)"));
  job.start(k1, 5);
  job.start(k3, 5);
  const auto done = job.all<coordinator_effect::RecoveryDone>();
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back().recovery.cause, ChangeCause::kCorrupted);
  EXPECT_THAT(done.back().recovery.members, ElementsAre(k2));
  EXPECT_EQ(done.back().recovery.redone_microbatches, 2U);
}

TEST(CoordinatorDisputes, TwoThatDifferEndTheJobAsFailed) {
  CoordinatorHarness job = running(2);
  differs(job, k1, 4, {1, 2, 3});
  differs(job, k2, 4, {1, 9, 3});
  EXPECT_EQ(job.outcome(), Outcome::kFailed);
}

TEST(CoordinatorDisputes, IfAWitnessWasCutOffTheNextViewComparesAgain) {
  CoordinatorHarness job = running(3);
  differs(job, k1, 4, {1, 2, 3});
  differs(job, k2, 4, {1, 9, 3});
  job.stopped(k3, 4);  // told to stop before it saw the difference
  EXPECT_FALSE(job.outcome());
  EXPECT_THAT(job.view_members(), ElementsAre(k1, k2, k3));
  differs(job, k1, 4, {1, 2, 3});
  differs(job, k2, 4, {1, 9, 3});
  differs(job, k3, 4, {1, 2, 3});
  EXPECT_THAT(job.view_members(), ElementsAre(k1, k3));
}

// The other members are in the same reduction, and the hashes of their states are needed.
TEST(CoordinatorDisputes, NobodyIsStoppedBeforeItCanSayWhatItHas) {
  CoordinatorHarness job = running(3);
  differs(job, k1, 4, {1, 2, 3});
  differs(job, k2, 4, {1, 9, 3});
  EXPECT_TRUE(job.sent<Stop>(k2).empty());
  EXPECT_TRUE(job.sent<Stop>(k3).empty());
  differs(job, k3, 4, {1, 2, 3});
  EXPECT_THAT(job.view_members(), ElementsAre(k1, k3));
}

TEST(CoordinatorDisputes, WhoDoesNotSayWhatItHasIsStoppedAfterASecond) {
  CoordinatorHarness job = running(3);
  differs(job, k1, 4, {1, 2, 3});
  job.pass(milliseconds(900), {k1, k2, k3});
  EXPECT_TRUE(job.sent<Stop>(k3).empty());
  job.pass(milliseconds(200), {k1, k2, k3});
  ASSERT_EQ(job.sent<Stop>(k3).size(), 1U);
  EXPECT_FALSE(job.sent<Stop>(k3)[0].at_boundary);
}

TEST(CoordinatorDisputes, ALostMemberEndsTheWaitForWhatTheOthersHave) {
  CoordinatorHarness job = running(3);
  differs(job, k1, 4, {1, 2, 3});
  job.give(coordinator_event::SentinelReport{k3, "killed"});
  ASSERT_EQ(job.sent<Stop>(k2).size(), 1U);
  EXPECT_FALSE(job.sent<Stop>(k2)[0].at_boundary);
  differs(job, k2, 4, {1, 2, 3});
  EXPECT_THAT(job.view_members(), ElementsAre(k1, k2));
}

TEST(CoordinatorDisputes, WhoseGroupBreaksMeanwhileEndsTheWaitToo) {
  CoordinatorHarness job = running(3);
  differs(job, k1, 4, {1, 2, 3});
  Stopped broken;
  broken.view = job.view().id;
  broken.committed = Step{4};
  broken.failed = true;
  job.say(k2, broken);
  EXPECT_EQ(job.sent<Stop>(k3).size(), 1U);
}

// The members were asked to stop at a boundary that they cannot reach any more.
TEST(CoordinatorDisputes, APlannedChangeThatADifferenceOvertakesIsARecovery) {
  CoordinatorHarness job = running(3);
  const MemberId late = job.join();
  job.pass(milliseconds(20), {k1, k2, k3});
  differs(job, k1, 4, {1, 2, 3});
  differs(job, k2, 4, {1, 9, 3});
  ASSERT_EQ(job.sent<Stop>(k3).size(), 1U);
  EXPECT_TRUE(job.sent<Stop>(k3)[0].at_boundary);
  job.stopped(k3, 4);  // it is not decided yet whose state is wrong
  ASSERT_THAT(job.view_members(), ElementsAre(k1, k2, k3, late));
  for (const MemberId member : job.view_members()) {
    job.start(member, 5);
  }
  const Recovery recovery = job.all<coordinator_effect::RecoveryDone>().back().recovery;
  EXPECT_EQ(recovery.cause, ChangeCause::kGroupFailed);
  EXPECT_EQ(recovery.told, recovery.detected);
}

TEST(CoordinatorDisputes, WhoOnlyObservesStopsNobodyAndIsNoWitness) {
  constexpr std::uint64_t kLarge = 1000;
  CoordinatorOptions with_observers = disputed_options(2);
  with_observers.observe_from_bytes = kLarge;
  CoordinatorHarness job(with_observers);
  for (int i = 0; i < 3; ++i) {
    const MemberId member = job.connect();
    job.say(member, Ready{Step{0}, kLarge});
  }
  job.stopped(k1, 4);
  job.stopped(k2, 4);
  ASSERT_TRUE(job.view().members[2].is_observer());
  job.clear();
  differs(job, k3, 0, {});
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
  differs(job, k1, 4, {1, 2, 3});
  differs(job, k2, 4, {1, 2, 3});
  EXPECT_FALSE(job.noted("corrupted"));
  EXPECT_THAT(job.view_members(), ElementsAre(k1, k2, k3));
}

TEST(CoordinatorDisputes, WhoIsLeftAloneWithADifferenceCannotTell) {
  CoordinatorHarness job = running(2);
  differs(job, k1, 4, {1, 2, 3});
  job.give(coordinator_event::SentinelReport{k2, "killed"});
  EXPECT_EQ(job.outcome(), Outcome::kFailed);
}

TEST(CoordinatorDisputes, AJoinerThatCopiedAWrongStateIsNoWitnessForIt) {
  CoordinatorHarness job = running(2);
  const MemberId joiner = job.join();
  job.stopped(k1, 4);
  job.stopped(k2, 4);
  ASSERT_THAT(job.view_members(), ElementsAre(k1, k2, joiner));
  // k1, the source, is wrong, and the joiner copied from it: two against one, but not two
  // witnesses.
  differs(job, k1, 4, {7, 7, 7});
  differs(job, k2, 4, {1, 2, 3});
  differs(job, joiner, 4, {7, 7, 7});
  EXPECT_EQ(job.outcome(), Outcome::kFailed);
}

TEST(CoordinatorDisputes, OnceAStepIsCommittedAJoinerCountsLikeEverybody) {
  CoordinatorHarness job = running(2);
  const MemberId joiner = job.join();
  job.stopped(k1, 4);
  job.stopped(k2, 4);
  differs(job, k1, 6, {7, 7, 7});
  differs(job, k2, 6, {1, 2, 3});
  differs(job, joiner, 6, {1, 2, 3});
  EXPECT_THAT(job.view_members(), ElementsAre(k2, joiner));
}

TEST(CoordinatorDisputes, ACopyThatWasNeverComparedIsStillNoWitnessInTheNextView) {
  CoordinatorHarness job = running(2);
  const MemberId joiner = job.join();
  job.stopped(k1, 4);
  job.stopped(k2, 4);
  job.stopped(k1, 4);  // the view ends before its first commit
  job.stopped(k2, 4);
  job.stopped(joiner, 4);
  differs(job, k1, 4, {7, 7, 7});
  differs(job, k2, 4, {1, 2, 3});
  differs(job, joiner, 4, {7, 7, 7});
  EXPECT_EQ(job.outcome(), Outcome::kFailed);
}

TEST(CoordinatorDisputes, WrongArithmeticIsToldApartByAThirdMember) {
  CoordinatorHarness job = running(3);
  differs(job, k1, 4, {1}, {}, Dispute::kMicrobatch);
  differs(job, k2, 4, {9}, {}, Dispute::kMicrobatch);
  differs(job, k3, 4, {1}, {}, Dispute::kMicrobatch);
  EXPECT_THAT(job.view_members(), ElementsAre(k1, k3));
  EXPECT_THAT(detail_of(job, "corrupted"), HasSubstr("microbatch of step 5"));
}

TEST(CoordinatorDisputes, OfTwoTheOneThatContradictsItselfGoes) {
  CoordinatorHarness job = running(2);
  differs(job, k1, 4, {1}, {}, Dispute::kMicrobatch, true);
  differs(job, k2, 4, {1}, {}, Dispute::kMicrobatch);
  EXPECT_THAT(job.view_members(), ElementsAre(k2));
}

}  // namespace
}  // namespace mayfly::elastic
