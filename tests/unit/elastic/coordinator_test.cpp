#include "elastic/core/coordinator.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

namespace mayfly::elastic {
namespace {

using Members = std::vector<MemberId>;

CoordinatorOptions options(std::uint32_t initial = 1) {
  CoordinatorOptions made;
  made.initial_workers = initial;
  return made;
}

// --- admission

TEST(CoordinatorAdmission, GivesFreshIdsAndWelcomesAfterAccepting) {
  CoordinatorHarness job(options());
  EXPECT_EQ(job.connect(), k1);
  EXPECT_EQ(job.connect(), k2);
  ASSERT_GE(job.effects.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<coordinator_effect::Accept>(job.effects[0]));
  EXPECT_EQ(job.sent<Welcome>(k1).at(0), (Welcome{k1, Incarnation{1}, 1, 1, false}));
}

TEST(CoordinatorAdmission, RefusesADifferentWorkerNamingTheFirstDifference) {
  CoordinatorOptions chosen = options();
  chosen.fingerprint = {{"seed", "1"}, {"model", "resnet20"}};
  CoordinatorHarness job(chosen);
  Hello hello;
  hello.fingerprint = {{"seed", "1"}, {"model", "resnet56"}};
  job.give(coordinator_event::WorkerConnected{7, hello});
  const auto refused = job.all<coordinator_effect::Refuse>();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].connection, 7u);
  EXPECT_EQ(refused[0].reason, "model: the job has resnet20, this worker has resnet56");
}

TEST(CoordinatorAdmission, RefusesAnotherProtocolVersion) {
  CoordinatorHarness job(options());
  Hello hello;
  hello.protocol = kProtocolVersion + 1;
  job.give(coordinator_event::WorkerConnected{1, hello});
  EXPECT_EQ(job.all<coordinator_effect::Refuse>().size(), 1u);
}

// --- the first view

TEST(CoordinatorFirstView, WaitsForTheInitialWorkersToBeReady) {
  CoordinatorHarness job(options(2));
  (void)job.join();
  const MemberId late = job.connect();
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  job.say(late, Ready{});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.view_members(), (Members{k1, k2}));
  EXPECT_EQ(job.sent<NewView>(k2).size(), 1u);
  EXPECT_EQ(job.view().id, ViewId{1});
}

TEST(CoordinatorFirstView, WhoComesAfterItIsToldThatTheJobIsUnderWay) {
  CoordinatorHarness job = running_job(2);
  const MemberId joiner = job.connect();
  EXPECT_TRUE(job.sent<Welcome>(joiner).at(0).underway);
}

TEST(CoordinatorFirstView, StartsWithFewerIfTheRestDoesNotComeForTooLong) {
  CoordinatorOptions chosen = options(3);
  chosen.min_workers_timeout = seconds(5);
  CoordinatorHarness job(chosen);
  (void)job.join();
  job.pass(seconds(6), {k1});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
}

TEST(CoordinatorFirstView, GivesWorkInProportionAndEveryMicrobatchOnce) {
  CoordinatorHarness job = running_job(3);
  std::uint32_t total = 0;
  for (const ViewMember& member : job.view().members) {
    EXPECT_EQ(member.first, total);
    total += member.count;
  }
  EXPECT_EQ(total, 8u);
}

TEST(CoordinatorFirstView, StartsFromTheHighestCheckpointThatSomebodyLoaded) {
  CoordinatorHarness job(options(2));
  (void)job.join(0);
  (void)job.join(40);
  EXPECT_EQ(job.view().committed, Step{40});
  EXPECT_EQ(job.view().source, Rank{1});
  EXPECT_TRUE(job.view().anyone_behind());
}

// --- losses

TEST(CoordinatorLoss, TellsEveryOtherMemberAtOnceToStop) {
  CoordinatorHarness job = running_job(3);
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  EXPECT_EQ(job.sent<Stop>(k1), (std::vector<Stop>{{ViewId{1}, false}}));
  EXPECT_EQ(job.sent<Stop>(k3), (std::vector<Stop>{{ViewId{1}, false}}));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kStopping);
}

TEST(CoordinatorLoss, MakesTheNextViewOnlyWhenEveryLivingMemberHasStopped) {
  CoordinatorHarness job = running_job(3);
  job.give(coordinator_event::SentinelReport{k2, "killed"});
  job.stopped(k1, 10);
  EXPECT_EQ(job.view().id, ViewId{1});
  job.stopped(k3, 10);
  EXPECT_EQ(job.view().id, ViewId{2});
  EXPECT_EQ(job.view_members(), (Members{k1, k3}));
}

TEST(CoordinatorLoss, TheHighestCommittedStateWinsAndItsHolderIsTheSource) {
  CoordinatorHarness job = running_job(3);
  job.give(coordinator_event::ConnectionLost{k1, "reset"});
  job.stopped(k2, 10, MicrobatchSet::range(3, 2));
  job.stopped(k3, 11);
  EXPECT_EQ(job.view().committed, Step{11});
  EXPECT_EQ(job.view().source, Rank{1});
  EXPECT_TRUE(job.view().anyone_behind());
  EXPECT_EQ(job.view().members[0].first_step.count() + job.view().members[1].first_step.count(), 8u)
      << "sums of an older step count for nothing";
}

TEST(CoordinatorLoss, SurvivorsKeepTheirSumsAndOnlyTheLostWorkIsRedone) {
  CoordinatorHarness job = running_job(4);
  job.give(coordinator_event::ConnectionLost{k4, "reset"});
  job.stopped(k1, 10, MicrobatchSet::range(0, 2));
  job.stopped(k2, 10, MicrobatchSet::range(2, 2));
  job.stopped(k3, 10, MicrobatchSet::range(4, 2));
  const View& view = job.view();
  EXPECT_TRUE(view.members[2].first_step.contains(4) && view.members[2].first_step.contains(5));
  for (const MemberId member : job.view_members()) {
    job.start(member, 11);
  }
  const auto done = job.all<coordinator_effect::RecoveryDone>();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].recovery.redone_microbatches, 2u);
}

TEST(CoordinatorLoss, ASecondLossWhileStoppingIsPartOfTheSameChange) {
  CoordinatorHarness job = running_job(3);
  job.give(coordinator_event::ConnectionLost{k1, "reset"});
  job.stopped(k2, 10);
  job.give(coordinator_event::ConnectionLost{k3, "reset"});
  EXPECT_EQ(job.view_members(), Members{k2});
}

TEST(CoordinatorLoss, AMemberThatDiesAfterItStoppedLeavesTheJobWithTheOthersState) {
  CoordinatorHarness job = running_job(3);
  job.give(coordinator_event::ConnectionLost{k1, "reset"});
  job.stopped(k2, 11);
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  job.stopped(k3, 10);
  EXPECT_EQ(job.view().committed, Step{10});
}

TEST(CoordinatorLoss, ALossWhileTheNewViewFormsStartsTheNextOne) {
  CoordinatorHarness job = running_job(3);
  job.give(coordinator_event::ConnectionLost{k1, "reset"});
  job.stopped(k2, 10);
  job.stopped(k3, 10);
  job.give(coordinator_event::ConnectionLost{k3, "reset"});
  job.stopped(k2, 10);
  EXPECT_EQ(job.view().id, ViewId{3});
  job.start(k2, 11);
  const auto done = job.all<coordinator_effect::RecoveryDone>();
  ASSERT_EQ(done.size(), 1u) << "two losses without a step between are one recovery";
  EXPECT_EQ(done[0].recovery.members, (Members{k1, k3}));
}

TEST(CoordinatorLoss, ASilentMemberIsLostAndToldSoShouldItWakeUp) {
  CoordinatorHarness job = running_job(2);
  job.pass(seconds(1), {k1});
  EXPECT_TRUE(job.noted("lost"));
  ASSERT_EQ(job.sent<Dismiss>(k2).size(), 1u);
  EXPECT_EQ(job.sent<Dismiss>(k2)[0].reason, DismissReason::kEvicted);
  EXPECT_EQ(job.sent<Stop>(k1).size(), 1u);
}

TEST(CoordinatorLoss, AMemberThatDoesNotStopInTimeIsEvicted) {
  CoordinatorHarness job = running_job(3);
  job.give(coordinator_event::ConnectionLost{k1, "reset"});
  job.stopped(k2, 10);
  job.pass(seconds(9), {k2, k3});
  EXPECT_FALSE(job.noted("evicted"));
  job.pass(seconds(2), {k2, k3});
  EXPECT_TRUE(job.noted("evicted"));
  EXPECT_EQ(job.view_members(), Members{k2});
}

TEST(CoordinatorLoss, IfAllMembersDieReadyJoinersComeAgainAndGoOnFromWhatTheyHaveThen) {
  CoordinatorHarness job = running_job(1, 10);
  const MemberId joiner = job.join(3);
  EXPECT_EQ(job.sent<Stop>(k1), (std::vector<Stop>{{ViewId{1}, true, true}}));
  job.give(coordinator_event::ConnectionLost{k1, "reset"});
  ASSERT_EQ(job.sent<Dismiss>(joiner).size(), 1U);
  EXPECT_TRUE(job.sent<Dismiss>(joiner)[0].may_rejoin);
  const MemberId again = job.join(5);
  EXPECT_EQ(job.view_members(), Members{again});
  EXPECT_EQ(job.view().committed, Step{5});
  EXPECT_TRUE(job.noted("restarted"));
}

TEST(CoordinatorLoss, AJoinerThatDiesBeforeAdmissionHarmsNobody) {
  CoordinatorHarness job = running_job(2);
  const MemberId joiner = job.connect();
  job.give(coordinator_event::ConnectionLost{joiner, "reset"});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
}

TEST(CoordinatorLoss, EventsOfUnknownMembersAreIgnored) {
  CoordinatorHarness job = running_job(1);
  job.give(coordinator_event::ConnectionLost{MemberId{99}, ""});
  job.say(MemberId{99}, Ready{});
  job.say(k1, Stopped{ViewId{77}, Step{3}, {}, false, true, {}, ""});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_TRUE(job.effects.empty());
}

// --- planned changes

TEST(CoordinatorJoin, AJoinerIsAdmittedAtABoundary) {
  CoordinatorHarness job = running_job(2);
  const MemberId joiner = job.join();
  EXPECT_EQ(job.sent<Stop>(k1), (std::vector<Stop>{{ViewId{1}, true, true}}));
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  EXPECT_EQ(job.view_members(), (Members{k1, k2, joiner}));
  EXPECT_TRUE(job.view().anyone_behind());
  EXPECT_EQ(job.view().source, Rank{0});
}

TEST(CoordinatorJoin, JoinersThatBecomeReadyMeanwhileComeInTheSameView) {
  CoordinatorHarness job = running_job(1);
  (void)job.join();
  (void)job.join();
  EXPECT_EQ(job.sent<Stop>(k1).size(), 1u);
  job.stopped(k1, 12);
  EXPECT_EQ(job.view_members(), (Members{k1, k2, k3}));
}

TEST(CoordinatorJoin, IsReportedAsARecoveryWithItsInstants) {
  CoordinatorHarness job = running_job(1);
  const Instant asked = job.now;
  const MemberId joiner = job.join();
  job.now = job.now + milliseconds(5);
  job.stopped(k1, 12);
  job.start(k1, 13);
  EXPECT_TRUE(job.all<coordinator_effect::RecoveryDone>().empty());
  job.start(joiner, 13);
  const auto done = job.all<coordinator_effect::RecoveryDone>();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].recovery.cause, ChangeCause::kJoin);
  EXPECT_EQ(done[0].recovery.members, Members{joiner});
  EXPECT_EQ(done[0].recovery.detected, asked);
  EXPECT_EQ(done[0].recovery.stopped, asked + milliseconds(5));
}

TEST(CoordinatorJoin, ALossDuringAPlannedStopTurnsItIntoAnImmediateOne) {
  CoordinatorHarness job = running_job(3);
  (void)job.join();
  job.give(coordinator_event::ConnectionLost{k3, "reset"});
  EXPECT_EQ(job.sent<Stop>(k1), (std::vector<Stop>{{ViewId{1}, true, true}, {ViewId{1}, false}}));
  job.stopped(k1, 10);
  job.stopped(k2, 10);
  EXPECT_EQ(job.view_members(), (Members{k1, k2, k4}));
}

TEST(CoordinatorLeave, ALeaverIsDismissedAtTheBoundaryAndTheOthersGoOn) {
  CoordinatorHarness job = running_job(2);
  job.say(k2, LeaveRequest{"SIGTERM"});
  EXPECT_EQ(job.sent<Stop>(k2), (std::vector<Stop>{{ViewId{1}, true}}));
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  ASSERT_EQ(job.sent<Dismiss>(k2).size(), 1u);
  EXPECT_EQ(job.sent<Dismiss>(k2)[0].reason, DismissReason::kDrained);
  EXPECT_EQ(job.view_members(), Members{k1});
  EXPECT_FALSE(job.view().anyone_behind());
}

TEST(CoordinatorLeave, TheOnlyHolderOfTheLastStepStaysUntilItIsCopied) {
  CoordinatorHarness job = running_job(3);
  job.say(k2, LeaveRequest{"SIGTERM"});
  job.give(coordinator_event::ConnectionLost{k3, "reset"});
  job.stopped(k1, 10);
  job.stopped(k2, 11);
  EXPECT_EQ(job.view_members(), (Members{k1, k2}));
  EXPECT_EQ(job.view().committed, Step{11});
  EXPECT_EQ(job.sent<Stop>(k2).back(), (Stop{ViewId{2}, true})) << "it leaves after one step";
}

TEST(CoordinatorLeave, ADrainThatWouldLeaveNobodyIsRefused) {
  CoordinatorHarness job = running_job(1);
  job.give(coordinator_event::DrainAsked{k1, "scale"});
  EXPECT_TRUE(job.noted("drain_refused"));
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
}

TEST(CoordinatorLeave, TheLastMembersOwnWishIsGrantedOnceAJoinerHasItsState) {
  CoordinatorHarness job = running_job(1);
  job.say(k1, LeaveRequest{"notice"});
  EXPECT_TRUE(job.noted("leave_deferred"));
  (void)job.join();
  job.stopped(k1, 11);
  EXPECT_EQ(job.view_members(), (Members{k1, k2}));
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  EXPECT_EQ(job.view_members(), Members{k2});
}

TEST(CoordinatorLeave, BelowTheMinimumTheJobWaitsAndResumes) {
  CoordinatorOptions chosen = options();
  chosen.min_workers = 2;
  CoordinatorHarness job = running_job(2, 10, chosen);
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  job.stopped(k1, 10, MicrobatchSet::range(0, 4));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  EXPECT_TRUE(job.noted("waiting"));
  const MemberId joiner = job.join();
  EXPECT_EQ(job.view_members(), (Members{k1, joiner}));
  EXPECT_TRUE(MicrobatchSet::range(0, 4).minus(job.view().members[0].first_step).empty());
}

TEST(CoordinatorLeave, TooFewWorkersForTooLongEndsTheJobWithACheckpoint) {
  CoordinatorOptions chosen = options();
  chosen.min_workers = 2;
  chosen.min_workers_timeout = seconds(5);
  CoordinatorHarness job = running_job(2, 10, chosen);
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  job.stopped(k1, 10);
  job.pass(seconds(4), {k1});
  EXPECT_FALSE(job.outcome());
  job.pass(seconds(2), {k1});
  EXPECT_EQ(job.outcome(), Outcome::kTooFewWorkers);
  EXPECT_EQ(job.sent<Dismiss>(k1)[0].reason, DismissReason::kJobFailed);
  EXPECT_TRUE(job.sent<Dismiss>(k1)[0].write_checkpoint);
}

// --- broken groups

TEST(CoordinatorBreak, AFailedGroupIsStoppedForEverybodyAndFormedAgain) {
  CoordinatorHarness job = running_job(3);
  job.failed(k1, 10);
  EXPECT_EQ(job.sent<Stop>(k2), (std::vector<Stop>{{ViewId{1}, false}}));
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
  job.stopped(k2, 10);
  job.stopped(k3, 10);
  EXPECT_EQ(job.view_members(), (Members{k1, k2, k3}));
}

TEST(CoordinatorBreak, AConnectedMemberThatTwoOthersBlameIsEvicted) {
  CoordinatorHarness job = running_job(3);
  job.failed(k1, 10, k3);
  job.failed(k2, 10, k3);
  job.stopped(k3, 10);
  EXPECT_TRUE(job.noted("evicted"));
  EXPECT_EQ(job.sent<Dismiss>(k3).at(0).reason, DismissReason::kUnreachable)
      << "it has to prove its links before it is ready again, though the view had worked";
  EXPECT_EQ(job.view_members(), (Members{k1, k2}));
}

TEST(CoordinatorBreak, AMemberBlamedThreeTimesInARowByTheSameOneIsEvicted) {
  CoordinatorHarness job = running_job(3);
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(job.noted("evicted"));
    job.failed(k1, 10, k2);
    job.stopped(k2, 10);
    job.stopped(k3, 10);
  }
  EXPECT_EQ(job.view_members(), (Members{k1, k3}));
}

TEST(CoordinatorBreak, BlameThatFollowsALossIsForgotten) {
  CoordinatorHarness job = running_job(4);
  job.failed(k1, 10, k2);
  job.failed(k3, 10, k2);
  job.give(coordinator_event::ConnectionLost{k4, "killed"});
  job.stopped(k2, 10);
  EXPECT_FALSE(job.noted("evicted"));
  EXPECT_EQ(job.view_members(), (Members{k1, k2, k3}));
}

// --- the end

TEST(CoordinatorEnd, IsReachedWhenEveryMemberHasFinished) {
  CoordinatorHarness job = running_job(2);
  job.finished(k1, 100);
  EXPECT_FALSE(job.outcome());
  job.finished(k2, 100);
  EXPECT_EQ(job.outcome(), Outcome::kDone);
  EXPECT_EQ(job.sent<Dismiss>(k1), (std::vector<Dismiss>{{DismissReason::kJobDone, true, ""}}));
  EXPECT_EQ(job.sent<Dismiss>(k2), (std::vector<Dismiss>{{DismissReason::kJobDone, false, ""}}));
}

TEST(CoordinatorEnd, OneThatMissedTheLastCommitGetsItInOneMoreView) {
  CoordinatorHarness job = running_job(2);
  job.finished(k1, 100);
  job.failed(k2, 99, k1);
  EXPECT_EQ(job.view().committed, Step{100});
  EXPECT_TRUE(job.view().anyone_behind());
  job.finished(k1, 100);
  job.finished(k2, 100);
  EXPECT_EQ(job.outcome(), Outcome::kDone);
}

TEST(CoordinatorEnd, AStopEndsAtABoundaryAndExactlyOneMemberWritesTheState) {
  CoordinatorHarness job = running_job(3);
  job.give(coordinator_event::StopAsked{"Ctrl-C"});
  EXPECT_EQ(job.sent<Stop>(k1), (std::vector<Stop>{{ViewId{1}, true}}));
  job.stopped(k1, 11);
  job.stopped(k2, 12);
  job.stopped(k3, 12);
  EXPECT_EQ(job.outcome(), Outcome::kStopped);
  EXPECT_FALSE(job.sent<Dismiss>(k1)[0].write_checkpoint);
  EXPECT_TRUE(job.sent<Dismiss>(k2)[0].write_checkpoint);
  EXPECT_FALSE(job.sent<Dismiss>(k3)[0].write_checkpoint);
}

TEST(CoordinatorEnd, AStopBeforeTheFirstViewEndsAtOnce) {
  CoordinatorHarness job(options(2));
  (void)job.join();
  job.give(coordinator_event::StopAsked{"Ctrl-C"});
  EXPECT_EQ(job.outcome(), Outcome::kStopped);
  EXPECT_FALSE(job.sent<Dismiss>(k1)[0].write_checkpoint);
}

TEST(CoordinatorEnd, AFailureEndsEverythingAtOnceWithoutACheckpoint) {
  CoordinatorHarness job = running_job(2);
  job.give(coordinator_event::FailAsked{"loss is not finite at step 12"});
  EXPECT_EQ(job.outcome(), Outcome::kFailed);
  EXPECT_EQ(job.sent<Dismiss>(k1)[0].reason, DismissReason::kJobFailed);
  EXPECT_FALSE(job.sent<Dismiss>(k1)[0].write_checkpoint);
}

TEST(CoordinatorEnd, NothingHappensAfterItExceptReports) {
  CoordinatorHarness job = running_job(1);
  job.finished(k1, 100);
  job.clear();
  job.say(k1, Report{{}, 250});
  ASSERT_EQ(job.all<coordinator_effect::ReportReceived>().size(), 1u);
  EXPECT_EQ(job.all<coordinator_effect::ReportReceived>()[0].happened, job.now - milliseconds(250));
  job.give(coordinator_event::WorkerConnected{9, Hello{}});
  EXPECT_EQ(job.all<coordinator_effect::Refuse>().size(), 1u);
  job.give(coordinator_event::StopAsked{"again"});
  job.pass(seconds(1), {});
  EXPECT_FALSE(job.outcome());
}

TEST(CoordinatorPause, HoldsAtABoundaryUntilResumed) {
  CoordinatorHarness job = running_job(2);
  job.give(coordinator_event::PauseAsked{true});
  job.stopped(k1, 11);
  job.stopped(k2, 11);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kPaused);
  (void)job.join();
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kPaused);
  job.give(coordinator_event::PauseAsked{false});
  EXPECT_EQ(job.view_members(), (Members{k1, k2, k3}));
}

TEST(CoordinatorPause, AStopWhilePausedEndsAtOnce) {
  CoordinatorHarness job = running_job(1);
  job.give(coordinator_event::PauseAsked{true});
  job.stopped(k1, 11);
  job.give(coordinator_event::StopAsked{"Ctrl-C"});
  EXPECT_EQ(job.outcome(), Outcome::kStopped);
  EXPECT_TRUE(job.sent<Dismiss>(k1)[0].write_checkpoint);
}

// --- rendezvous store

TEST(CoordinatorStore, AnswersAGetWhenTheKeyIsSet) {
  CoordinatorHarness job = running_job(2);
  job.say(k1, StoreGet{ViewId{1}, "id"});
  EXPECT_TRUE(job.sent<StoreValue>(k1).empty());
  job.say(k2, StoreSet{ViewId{1}, "id", Bytes(3)});
  EXPECT_EQ(job.sent<StoreValue>(k1), (std::vector<StoreValue>{{ViewId{1}, "id", Bytes(3)}}));
  job.say(k2, StoreGet{ViewId{1}, "id"});
  EXPECT_EQ(job.sent<StoreValue>(k2).size(), 1u);
}

TEST(CoordinatorStore, ForgetsEverythingWithItsView) {
  CoordinatorHarness job = running_job(3);
  job.say(k2, StoreSet{ViewId{1}, "id", Bytes(3)});
  job.give(coordinator_event::ConnectionLost{k3, "reset"});
  job.stopped(k1, 10);
  job.stopped(k2, 10);
  job.say(k1, StoreGet{ViewId{2}, "id"});
  job.say(k2, StoreSet{ViewId{1}, "id", Bytes(3)});
  EXPECT_TRUE(job.sent<StoreValue>(k1).empty());
}

TEST(Coordinator, TheSameEventsGiveTheSameViews) {
  for (int run = 0; run < 2; ++run) {
    CoordinatorHarness one = running_job(3);
    CoordinatorHarness other = running_job(3);
    EXPECT_EQ(one.view(), other.view());
    EXPECT_NE(one.view().key, 0u);
  }
}

TEST(Coordinator, ShowsItsMembersPhases) {
  CoordinatorHarness job = running_job(1);
  (void)job.connect();
  (void)job.join();
  const auto members = job.coordinator.members();
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].phase, MemberPhase::kActive);
  EXPECT_EQ(members[1].phase, MemberPhase::kLoading);
  EXPECT_EQ(members[2].phase, MemberPhase::kReady);
  EXPECT_EQ(job.coordinator.committed(), Step{10});
}

}  // namespace
}  // namespace mayfly::elastic
