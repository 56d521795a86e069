#include <gtest/gtest.h>

#include "elastic/core/coordinator.hpp"
#include "tests/unit/elastic/resume_fixture.hpp"

// A coordinator that was restarted with the log of its predecessor.

namespace mayfly::elastic {
namespace {

const ViewId kFirstOfSecond{id_base(Incarnation{2}) + 1};

CoordinatorHarness resumed(const View& view) {
  CoordinatorOptions options;
  options.identity = 9;
  return {options, log_with(view)};
}

TEST(CoordinatorLog, SaysWhoWeAreBeforeAnythingElseAndEachViewBeforeItIsSent) {
  CoordinatorOptions options;
  options.identity = 9;
  Coordinator fresh(options);
  const auto first = fresh.handle(Instant{}, coordinator_event::Tick{});
  ASSERT_GE(first.size(), 2u);
  const auto& job = std::get<coordinator_effect::Append>(first[0]);
  const auto& term = std::get<coordinator_effect::Append>(first[1]);
  EXPECT_EQ(std::get<log_record::JobStarted>(job.record).job, 9u);
  EXPECT_EQ(std::get<log_record::IncarnationStarted>(term.record).incarnation, Incarnation{1});
  EXPECT_TRUE(term.durable);

  CoordinatorHarness harness(options);
  (void)harness.join();
  std::size_t logged = harness.effects.size();
  std::size_t sent = harness.effects.size();
  for (std::size_t i = 0; i < harness.effects.size(); ++i) {
    const auto* append = std::get_if<coordinator_effect::Append>(&harness.effects[i]);
    const auto* send = std::get_if<coordinator_effect::SendToAll>(&harness.effects[i]);
    if (append != nullptr && std::holds_alternative<log_record::ViewPublished>(append->record)) {
      EXPECT_TRUE(append->durable) << "who finds no view begins the job with other workers";
      logged = i;
    } else if (send != nullptr && std::holds_alternative<NewView>(send->message)) {
      sent = i;
    }
  }
  EXPECT_LT(logged, sent);
  EXPECT_LT(sent, harness.effects.size());
}

TEST(CoordinatorLog, LaterViewsMayBeMissingAsMembersKnowThem) {
  for (const bool has_quorum : {false, true}) {
    CoordinatorHarness job = has_quorum ? primary(3) : running_job(3, 1);
    lose(job, {job.view_members()[2]});
    job.stopped(job.view_members()[0], 1);
    job.stopped(job.view_members()[1], 1);
    std::vector<bool> durable;
    for (const auto& append : job.all<coordinator_effect::Append>()) {
      if (std::holds_alternative<log_record::ViewPublished>(append.record)) {
        durable.push_back(append.durable);
      }
    }
    EXPECT_EQ(durable, std::vector<bool>{false});
  }
}

TEST(CoordinatorLog, RemembersPausesAndTheEnd) {
  CoordinatorHarness job(CoordinatorOptions{});
  job.give(coordinator_event::PauseAsked{true});
  job.give(coordinator_event::PauseAsked{true});
  job.give(coordinator_event::FailAsked{"drill"});
  EXPECT_EQ(appended<log_record::Paused>(job).size(), 1u);
  ASSERT_EQ(appended<log_record::JobEnded>(job).size(), 1u);
  EXPECT_EQ(appended<log_record::JobEnded>(job)[0].outcome, Outcome::kFailed);
}

TEST(CoordinatorResume, BeginsAHigherIncarnationThanTheLogKnows) {
  CoordinatorHarness job = resumed(old_view(5, 2));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  EXPECT_EQ(job.coordinator.incarnation(), Incarnation{2});
  EXPECT_EQ(job.coordinator.job(), kJob);
  ASSERT_EQ(appended<log_record::IncarnationStarted>(job).size(), 1u);
}

TEST(CoordinatorResume, DisturbsNobodyIfAllAreBackAndRunTheLastView) {
  const View view = old_view(5, 3);
  CoordinatorHarness job = resumed(view);
  for (const MemberId member : {k1, k2, k3}) {
    EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
    return_running(job, member, view);
  }
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.view().id, ViewId{5});
  EXPECT_EQ(job.coordinator.committed(), Step{12});
  for (const MemberId member : {k1, k2, k3}) {
    EXPECT_TRUE(job.sent<Stop>(member).empty());
    EXPECT_TRUE(job.sent<NewView>(member).empty());
    ASSERT_EQ(job.sent<Welcome>(member).size(), 1u);
    EXPECT_EQ(job.sent<Welcome>(member)[0], (Welcome{member, Incarnation{2}, 9, kJob, true}));
  }
}

TEST(CoordinatorResume, HandlesALossAfterwardsAsAlways) {
  const View view = old_view(5, 3);
  CoordinatorHarness job = resumed(view);
  for (const MemberId member : {k1, k2, k3}) {
    return_running(job, member, view);
  }
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  EXPECT_EQ(job.sent<Stop>(k1).size(), 1u);
  job.stopped(k1, 12);
  job.stopped(k3, 12);
  EXPECT_EQ(job.view().id, kFirstOfSecond);
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k3}));
  EXPECT_EQ(job.view().committed, Step{12});
}

TEST(CoordinatorResume, WhoDoesNotComeBackInTimeIsLost) {
  const View view = old_view(5, 3);
  CoordinatorHarness job = resumed(view);
  job.pass(seconds(10), {});  // without any member it waits
  return_running(job, k1, view);
  return_running(job, k3, view);
  job.pass(milliseconds(1900), {k1, k3});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  job.pass(milliseconds(200), {k1, k3});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kStopping);
  EXPECT_EQ(job.sent<Stop>(k1).size(), 1u);
  job.stopped(k1, 12, MicrobatchSet::range(0, 2));
  job.stopped(k3, 12);
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k3}));
  EXPECT_TRUE(MicrobatchSet::range(0, 2).minus(job.view().members[0].first_step).empty())
      << "sums are kept";
}

/// The messages of members that returned while the coordinator was suspended are read after its
/// first tick.
TEST(CoordinatorResume, TheTimeToComeBackDoesNotPassWhileTheCoordinatorItselfStandsStill) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = resumed(view);
  job.pass(seconds(1), {});
  return_running(job, k1, view);
  job.pass(milliseconds(500), {k1});
  job.now = job.now + seconds(5);
  job.give(coordinator_event::Tick{});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  return_running(job, k2, view);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
}

TEST(CoordinatorResume, MembersAreNotGivenUpForAStandstillOfTheCoordinatorItself) {
  const View view = old_view(5, 2, 0);
  CoordinatorHarness job = resumed(view);
  const MemberId fresh = job.join();
  job.pass(seconds(1), {fresh});
  job.now = job.now + seconds(40);
  job.give(coordinator_event::Tick{});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  job.pass(seconds(30), {fresh});
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{fresh}));
}

TEST(CoordinatorResume, IsNotFooledByALogThatHasLostTheLastView) {
  CoordinatorHarness job = resumed(old_view(5, 3));
  const View newer = old_view(6, 2, 14);
  return_running(job, k1, newer, 15);
  return_running(job, k2, newer, 15);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.view().id, ViewId{6});
}

TEST(CoordinatorResume, AViewThatNobodyHasSeenIsReplaced) {
  const View seen = old_view(4, 2);
  const View unseen = old_view(5, 2, 12);
  CoordinatorHarness job = resumed(unseen);
  return_stopped(job, k1, seen, 12, MicrobatchSet::range(0, 4));
  return_stopped(job, k2, seen, 12, MicrobatchSet::range(4, 4));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.view().id, kFirstOfSecond);
  EXPECT_EQ(job.view().members[0].first_step, MicrobatchSet::range(0, 4));
  EXPECT_EQ(job.sent<NewView>(k2).size(), 1u);
}

TEST(CoordinatorResume, AMemberThatTheLastViewLeftOutIsToldSoAndMayJoinAnew) {
  View view = old_view(5, 3);
  view.members.erase(view.members.begin() + 1);
  CoordinatorHarness job = resumed(view);
  return_running(job, k2, old_view(4, 3));
  return_running(job, k1, view);
  return_running(job, k3, view);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  ASSERT_EQ(job.sent<Dismiss>(k2).size(), 1u);
  EXPECT_EQ(job.sent<Dismiss>(k2)[0].reason, DismissReason::kEvicted);
  EXPECT_TRUE(job.sent<Dismiss>(k2)[0].may_rejoin);
  EXPECT_TRUE(job.sent<Stop>(k1).empty());
}

TEST(CoordinatorResume, AMemberThatTheLastViewLeftOutGivesItsStateIfNobodyElseHasIt) {
  View unseen = old_view(5, 3, 12);
  unseen.members.erase(unseen.members.begin() + 1);
  CoordinatorHarness job = resumed(unseen);
  const MemberId joiner = job.join();
  ASSERT_TRUE(come_back(job, k2, 4));
  Resume resume = stopped_in(job, old_view(4, 3), 12, MicrobatchSet::range(2, 3));
  resume.is_leaving = true;  // it was dismissed and does not know that yet
  resume.leave_reason = "notice";
  job.say(k2, resume);
  job.pass(milliseconds(2100), {k2, joiner});
  EXPECT_TRUE(job.sent<Dismiss>(k2).empty());
  ASSERT_EQ(job.view_members(), (std::vector<MemberId>{k2, joiner}));
  EXPECT_EQ(job.view().committed, Step{12});
  EXPECT_EQ(job.view().source, Rank{0});
  EXPECT_FALSE(job.noted("restarted"));
  job.stopped(k2, 12, MicrobatchSet::range(2, 3));  // what it held before
  job.stopped(joiner, 12);
  EXPECT_FALSE(job.noted("evicted"));
  ASSERT_EQ(job.sent<Dismiss>(k2).size(), 1u) << "the joiner has the state now";
  EXPECT_EQ(job.sent<Dismiss>(k2)[0].reason, DismissReason::kDrained);
}

TEST(CoordinatorResume, AMemberThatTheLastViewLeftOutIsNotNeededIfAnotherHasAsMuch) {
  View view = old_view(5, 3, 11);
  view.members.erase(view.members.begin() + 1);
  for (const std::uint64_t committed : {11, 12}) {  // 12: perhaps with other bits in each view
    CoordinatorHarness job = resumed(view);
    return_stopped(job, k2, old_view(4, 3), committed);
    return_stopped(job, k1, view, 12);
    job.pass(milliseconds(2100), {k1, k2});
    EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1}));
    ASSERT_EQ(job.sent<Dismiss>(k2).size(), 1u);
    EXPECT_EQ(job.sent<Dismiss>(k2)[0].reason, DismissReason::kEvicted);
  }
}

TEST(CoordinatorResume, AMemberThatFoundADisputeDoesNotGiveItsState) {
  View unseen = old_view(5, 3, 12);
  unseen.members.erase(unseen.members.begin() + 1);
  CoordinatorHarness job = resumed(unseen);
  const MemberId joiner = job.join();
  ASSERT_TRUE(come_back(job, k2, 4));
  Resume resume = stopped_in(job, old_view(4, 3), 12);
  resume.last->dispute = Dispute::kState;
  job.say(k2, resume);
  job.pass(milliseconds(2100), {k2, joiner});
  EXPECT_EQ(job.sent<Dismiss>(k2).size(), 1u);
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{joiner}));
}

TEST(CoordinatorResume, OneThatComesWhenTheJobHasGoneOnIsRefused) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = resumed(view);
  return_running(job, k1, view);
  job.pass(milliseconds(2100), {k1});
  job.stopped(k1, 12);
  ASSERT_EQ(job.view_members(), (std::vector<MemberId>{k1}));
  EXPECT_FALSE(come_back(job, k2, 5));
  ASSERT_EQ(job.all<coordinator_effect::Refuse>().size(), 1u);
  EXPECT_EQ(job.all<coordinator_effect::Refuse>()[0].refusal, Refusal::kEvicted);
}

TEST(CoordinatorResume, OneThatComesWhileTheViewEndsIsTakenBack) {
  const View view = old_view(5, 3);
  CoordinatorHarness job = resumed(view);
  return_running(job, k1, view);
  return_running(job, k3, view);
  job.pass(milliseconds(2100), {k1, k3});
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kStopping);
  return_running(job, k2, view);
  ASSERT_EQ(job.sent<Stop>(k2).size(), 1u);
  EXPECT_FALSE(job.sent<Stop>(k2)[0].at_boundary) << "the others have stopped already";
  job.stopped(k1, 12);
  job.stopped(k2, 12);
  job.stopped(k3, 12);
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2, k3}));
}

TEST(CoordinatorResume, NewMembersGetIdsThatNobodyEverHad) {
  const View view = old_view(5, 1);
  CoordinatorHarness job = resumed(view);
  const MemberId joiner = job.join();
  EXPECT_EQ(value(joiner), id_base(Incarnation{2}) + 1);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  return_running(job, k1, view);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kStopping) << "it is admitted at a boundary";
}

TEST(CoordinatorResume, EndsTheJobIfItWasFinishedMeanwhile) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = resumed(view);
  for (const MemberId member : {k1, k2}) {
    ASSERT_TRUE(come_back(job, member, 5));
    Resume resume = stopped_in(job, view, 40);
    resume.last->finished = true;
    job.say(member, resume);
  }
  EXPECT_EQ(job.outcome(), Outcome::kDone);
}

TEST(CoordinatorResume, AMemberThatWantsToLeaveStillDoes) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = resumed(view);
  return_running(job, k1, view);
  ASSERT_TRUE(come_back(job, k2, 5));
  Resume resume = running_in(job, view, 12);
  resume.is_leaving = true;
  resume.leave_reason = "notice";
  job.say(k2, resume);
  ASSERT_EQ(job.sent<Stop>(k1).size(), 1u);
  EXPECT_TRUE(job.sent<Stop>(k1)[0].at_boundary);
}

TEST(CoordinatorResume, APausedJobStaysPaused) {
  LogContents contents = log_with(old_view(5, 1));
  contents.is_paused = true;
  CoordinatorHarness job(CoordinatorOptions{}, contents);
  return_stopped(job, k1, old_view(5, 1));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kPaused);
}

TEST(CoordinatorResume, AnObserverThatHasCaughtUpMeanwhileStarts) {
  View view = old_view(5, 3);
  view.members[2] = {k3, "", {}, 0, 0, ViewId{5}};
  CoordinatorHarness job = resumed(view);
  return_running(job, k1, view);
  return_running(job, k2, view);
  ASSERT_TRUE(come_back(job, k3, 5));
  Resume resume = running_in(job, view, 12);
  resume.has_caught_up = true;
  job.say(k3, resume);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kStopping);
  ASSERT_EQ(job.sent<Stop>(k1).size(), 1u);
  EXPECT_TRUE(job.sent<Stop>(k1)[0].at_boundary);
}

TEST(CoordinatorResume, AJoinerThatIsReadyStillObservesIfItsStateIsLarge) {
  for (const std::uint64_t bytes : {CoordinatorOptions{}.observe_from_bytes, std::uint64_t{0}}) {
    const View view = old_view(5, 2);
    CoordinatorHarness job = resumed(view);
    ASSERT_TRUE(come_back(job, k3, 0));
    Resume ready;
    ready.incarnation = job.coordinator.incarnation();
    ready.phase = ResumePhase::kReady;
    ready.state_bytes = bytes;
    job.say(k3, ready);
    return_running(job, k1, view);
    return_running(job, k2, view);
    ASSERT_EQ(job.sent<Stop>(k1).size(), 1u);
    job.stopped(k1, 13);
    job.stopped(k2, 13);
    ASSERT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2, k3}));
    EXPECT_EQ(job.view().has_observers(), bytes > 0);
  }
}

TEST(CoordinatorResume, AnObserverThatCatchesUpBeforeItIsInChargeStarts) {
  View view = old_view(5, 3);
  view.members[2] = {k3, "", {}, 0, 0, ViewId{5}};
  CoordinatorHarness job = resumed(view);
  return_running(job, k1, view);
  return_running(job, k3, view);
  job.say(k3, CaughtUp{ViewId{5}, Step{12}});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  return_running(job, k2, view);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kStopping);
}

TEST(CoordinatorResume, TheStoreOfTheLastViewServesThoseThatAreBack) {
  const View view = old_view(5, 3);
  CoordinatorHarness job = resumed(view);
  return_running(job, k1, view);
  job.say(k1, StoreGet{view.id, "reports"});
  return_running(job, k2, view);
  job.say(k2, StoreSet{view.id, "reports", Bytes(3)});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  ASSERT_EQ(job.sent<StoreValue>(k1).size(), 1u);
  EXPECT_EQ(job.sent<StoreValue>(k1)[0], (StoreValue{view.id, "reports", Bytes(3)}));
}

/// The predecessor may have died after it wrote the log and before it wrote the run directory.
TEST(CoordinatorResume, TheViewItGoesOnWithIsToldAgain) {
  const View view = old_view(5, 1);
  CoordinatorHarness job = resumed(view);
  EXPECT_TRUE(job.all<coordinator_effect::ViewTakenOver>().empty());
  return_running(job, k1, view);
  ASSERT_EQ(job.all<coordinator_effect::ViewTakenOver>().size(), 1u);
  EXPECT_EQ(job.all<coordinator_effect::ViewTakenOver>()[0].view, view);
}

TEST(CoordinatorResume, AReportThatArrivesBeforeItIsInChargeCounts) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = resumed(view);
  return_running(job, k1, view, 12);
  job.say(k1, Stopped{view.id, Step{13}, {}, false, true, k2, "reset"});
  return_stopped(job, k2, view, 13);
  EXPECT_EQ(job.view().id, kFirstOfSecond);
  EXPECT_EQ(job.view().committed, Step{13});
}

/// Progress is sent only from time to time, so the coordinator may learn of the last step from a
/// report first.
TEST(CoordinatorResume, AStepThatOnlyAReportBeforeItIsInChargeTellsOfIsNotUndone) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = resumed(view);
  return_running(job, k1, view, 12);
  job.say(k1, Stopped{view.id, Step{13}, {}, false, true, k2, "reset"});
  return_stopped(job, k2, view, 12);
  EXPECT_EQ(job.view().committed, Step{13});
  EXPECT_EQ(job.view().source, Rank{0});
  EXPECT_EQ(job.coordinator.committed(), Step{13});
  EXPECT_FALSE(job.noted("restarted"));
}

TEST(CoordinatorResume, WhatAMemberHeldBeforeItsViewIsNoContradictionAfterwardsEither) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = resumed(view);
  ASSERT_TRUE(come_back(job, k1, 5));
  Resume resume = running_in(job, view, 10);
  resume.held_before = MicrobatchSet::range(6, 1);  // kept, although another member has it now
  job.say(k1, resume);
  return_running(job, k2, view, 10);
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  MicrobatchSet held = MicrobatchSet::range(0, 4);
  held.add(6);
  job.stopped(k1, 10, held);
  EXPECT_FALSE(job.noted("evicted"));
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1}));
}

TEST(CoordinatorResume, AMemberThatHasAcceptedAHigherIncarnationIsFollowed) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = resumed(view);
  return_running(job, k1, view);
  ASSERT_TRUE(come_back(job, k2, 5, 7));
  EXPECT_EQ(job.coordinator.incarnation(), Incarnation{8});
  EXPECT_EQ(job.sent<Welcome>(k1).back().incarnation, Incarnation{8}) << "asked again";
  job.say(k2, running_in(job, view, 12));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming)
      << "what member 1 said was to another term";
  job.say(k1, running_in(job, view, 12));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
}

TEST(CoordinatorResume, AResumeForAnOlderIncarnationMeansNothing) {
  const View view = old_view(5, 1);
  CoordinatorHarness job = resumed(view);
  ASSERT_TRUE(come_back(job, k1, 5));
  Resume late = running_in(job, view, 12);
  late.incarnation = Incarnation{1};
  job.say(k1, late);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
}

TEST(CoordinatorResume, RefusesMembersOfOtherJobsAndImpossibleOnes) {
  CoordinatorHarness job = resumed(old_view(5, 2));
  Hello other;
  other.member = k1;
  other.job = kJob + 1;
  other.incarnation = Incarnation{1};
  job.give(coordinator_event::WorkerConnected{1, other});
  EXPECT_FALSE(come_back(job, MemberId{id_base(Incarnation{3})}, 5));
  EXPECT_FALSE(come_back(job, k1, 5, UINT64_MAX));
  EXPECT_FALSE(come_back(job, MemberId{id_base(Incarnation{2})}, 5)) << "the last of its range";
  EXPECT_TRUE(job.all<coordinator_effect::Accept>().empty());
}

TEST(CoordinatorResume, GivesUpAllMembersIfNobodyComesForLong) {
  CoordinatorHarness job = resumed(old_view(5, 2, 0));
  const MemberId fresh = job.join();
  job.pass(seconds(31), {fresh});
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{fresh}));
}

TEST(CoordinatorResume, AStopThatNobodyComesForEndsTheJobSoon) {
  CoordinatorHarness job = resumed(old_view(5, 2, 0));
  job.give(coordinator_event::StopAsked{"enough"});
  EXPECT_EQ(job.outcome(), std::nullopt);
  job.pass(seconds(3), {});
  EXPECT_EQ(job.outcome(), Outcome::kStopped);
}

TEST(CoordinatorResume, AStopWaitsForMembersThatComeBack) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = resumed(view);
  job.give(coordinator_event::StopAsked{"enough"});
  return_running(job, k1, view);
  return_running(job, k2, view);
  for (const MemberId member : {k1, k2}) {
    EXPECT_EQ(job.sent<Stop>(member).size(), 1u);
    job.stopped(member, 13);
  }
  EXPECT_EQ(job.outcome(), Outcome::kStopped);
  EXPECT_EQ(job.coordinator.committed(), Step{13});
}

}  // namespace
}  // namespace mayfly::elastic
