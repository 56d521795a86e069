#include <gtest/gtest.h>

#include <set>

#include "elastic/core/coordinator.hpp"
#include "tests/unit/elastic/resume_fixture.hpp"

// Jobs with standbys: which decisions need a majority, and of which members.

namespace mayfly::elastic {
namespace {

TEST(CoordinatorQuorum, AMajorityGoesOnWithoutTheRest) {
  CoordinatorHarness job = primary(5);
  lose(job, {k4, k5});
  for (const MemberId member : {k1, k2, k3}) {
    job.stopped(member, 1);
  }
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2, k3}));
}

TEST(CoordinatorQuorum, AMinorityWaitsAndIsThenSentToOtherCoordinators) {
  CoordinatorHarness job = primary(5);
  lose(job, {k3, k4, k5});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  EXPECT_TRUE(job.noted("no_quorum"));
  job.pass(milliseconds(2900), {k1, k2});
  EXPECT_TRUE(job.sent<NoQuorum>(k1).empty());
  job.pass(milliseconds(3200), {k1, k2});
  EXPECT_EQ(job.sent<NoQuorum>(k1).size(), 1u);
  EXPECT_EQ(job.sent<NoQuorum>(k2).size(), 1u);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  EXPECT_FALSE(job.outcome());
}

/// A deposed coordinator kept its members, and the one in charge waited for them (failover, seed
/// 3819).
TEST(CoordinatorQuorum, AMinorityIsSentToOtherCoordinatorsEvenIfTheJobNeedsMoreWorkers) {
  CoordinatorHarness job = primary(5, 4);
  lose(job, {k3, k4, k5});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  EXPECT_TRUE(job.noted("no_quorum"));
  job.pass(milliseconds(6100), {k1, k2});
  EXPECT_EQ(job.sent<NoQuorum>(k1).size(), 1u);
  EXPECT_EQ(job.sent<NoQuorum>(k2).size(), 1u);
}

TEST(CoordinatorQuorum, AMajorityStaysThoughTheJobNeedsMoreWorkers) {
  CoordinatorHarness job = primary(5, 4);
  const View view = job.view();
  lose(job, {k3, k4, k5});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  job.pass(milliseconds(2000), {k1, k2});
  EXPECT_FALSE(job.coordinator.is_in_charge());
  return_stopped(job, k3, view, 1);
  EXPECT_TRUE(job.coordinator.is_in_charge());
  job.pass(milliseconds(10000), {k1, k2, k3});
  EXPECT_TRUE(job.sent<NoQuorum>(k1).empty());
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  (void)job.join();
  EXPECT_EQ(job.view_members().size(), 4u);
}

/// The connection of a killed process may break before its sentinel reports the death.
TEST(CoordinatorQuorum, ADeathThatIsToldAfterTheConnectionBrokeCounts) {
  CoordinatorHarness job = primary(3);
  EXPECT_FALSE(job.coordinator.awaits_members());
  lose(job, {k2, k3});
  EXPECT_TRUE(job.coordinator.awaits_members());
  job.stopped(k1, 1);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  EXPECT_TRUE(job.coordinator.awaits_members());
  job.give(coordinator_event::SentinelReport{k3, "died", true, Incarnation{1}, kJob});
  EXPECT_EQ(job.view_members(), std::vector<MemberId>{k1});
  EXPECT_FALSE(job.coordinator.awaits_members());
  CoordinatorHarness without = running_job(2);
  lose(without, {k2});
  EXPECT_FALSE(without.coordinator.awaits_members());
}

/// All connections broke at once, because of the coordinator's network or because it was suspended.
/// If its members train under a standby, their servers are the standby's to replace and to release.
TEST(CoordinatorQuorum, IsNotInChargeWhenAllMembersMayObeyAnotherCoordinator) {
  CoordinatorOptions options = quorum_options();
  options.initial_workers = 3;
  options.min_workers_timeout = seconds(5);
  CoordinatorHarness job(options);
  for (int i = 0; i < 3; ++i) {
    (void)job.join();
  }
  EXPECT_TRUE(job.coordinator.is_in_charge());
  lose(job, {k1, k2, k3});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  EXPECT_FALSE(job.coordinator.is_in_charge());
  job.pass(seconds(6), {});
  EXPECT_EQ(job.outcome(), Outcome::kTooFewWorkers);
  EXPECT_FALSE(job.coordinator.is_in_charge());
}

TEST(CoordinatorQuorum, IsNotInChargeOfAPausedJobWithoutMembers) {
  CoordinatorHarness job = primary(2);
  job.give(coordinator_event::PauseAsked{true});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kPaused);
  EXPECT_TRUE(job.coordinator.is_in_charge());
  lose(job, {k1, k2});
  EXPECT_FALSE(job.coordinator.is_in_charge());
}

TEST(CoordinatorQuorum, IsInChargeWithoutMembersIfAMajorityIsDeadOrTheJobIsDone) {
  CoordinatorHarness job = primary(3);
  lose(job, {k1, k2, k3});
  for (const MemberId dead : {k2, k3}) {
    job.give(coordinator_event::SentinelReport{dead, "died", true, Incarnation{1}, kJob});
  }
  EXPECT_TRUE(job.coordinator.is_in_charge());
  CoordinatorHarness done = primary(2);
  done.finished(k1, 2);
  done.finished(k2, 2);
  ASSERT_EQ(done.outcome(), Outcome::kDone);
  EXPECT_TRUE(done.coordinator.is_in_charge());
}

/// The coordinator was suspended, for example by a slow disk. The third member has returned
/// meanwhile.
TEST(CoordinatorQuorum, NobodyIsSentAwayBecauseTheCoordinatorItselfStoodStill) {
  CoordinatorHarness job = primary(5);
  const View view = job.view();
  lose(job, {k3, k4, k5});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  job.pass(milliseconds(100), {k1, k2});
  job.now = job.now + seconds(700);
  job.give(coordinator_event::Tick{});
  EXPECT_TRUE(job.sent<NoQuorum>(k1).empty());
  EXPECT_FALSE(job.outcome());
  return_stopped(job, k3, view, 1);
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2, k3}));
}

/// Two groups of members each went on to the next coordinator of the list in turn, and did so for
/// 80 s (failover, seed 1158608).
TEST(CoordinatorQuorum, AMinorityIsSentToThatOrAnotherCoordinatorButAllOfItToTheSame) {
  CoordinatorHarness job = primary(5);
  const View view = job.view();
  lose(job, {k3, k4, k5});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  std::set<std::uint32_t> of_three;  // coordinators
  for (std::size_t rounds = 1; rounds <= 12; ++rounds) {
    job.pass(seconds(7), {k1, k2});
    ASSERT_EQ(job.sent<NoQuorum>(k1).size(), rounds);
    ASSERT_EQ(job.sent<NoQuorum>(k2).size(), rounds);
    EXPECT_EQ(job.sent<NoQuorum>(k1).back().skip, job.sent<NoQuorum>(k2).back().skip);
    of_three.insert(job.sent<NoQuorum>(k1).back().skip % 2);
    return_stopped(job, k1, view, 1);
    return_stopped(job, k2, view, 1);
  }
  EXPECT_EQ(of_three.size(), 2u);
}

TEST(CoordinatorQuorum, OfTwoHalvesTheOneWithTheFirstMemberGoesOn) {
  CoordinatorHarness with_first = primary(4);
  lose(with_first, {k3, k4});
  with_first.stopped(k1, 1);
  with_first.stopped(k2, 1);
  EXPECT_EQ(with_first.coordinator.phase(), JobPhase::kRunning);

  CoordinatorHarness without = primary(4);
  lose(without, {k1, k2});
  without.stopped(k3, 1);
  without.stopped(k4, 1);
  EXPECT_EQ(without.coordinator.phase(), JobPhase::kWaiting);
}

TEST(CoordinatorQuorum, LostMembersThatComeBackCompleteIt) {
  CoordinatorHarness job = primary(3);
  const View view = job.view();
  lose(job, {k2, k3});
  job.stopped(k1, 1);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  return_stopped(job, k3, view, 1);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k3}));
}

TEST(CoordinatorQuorum, MembersThatAreDeadForCertainConsent) {
  CoordinatorHarness job = primary(3);
  job.give(coordinator_event::SentinelReport{k1, "killed", true, Incarnation{1}, kJob});
  job.give(coordinator_event::SentinelReport{k2, "killed", true, Incarnation{1}, kJob});
  job.stopped(k3, 1);
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k3}));
}

TEST(CoordinatorQuorum, TheDeadDoNotConsentIfTheyHadAcceptedAnotherIncarnation) {
  CoordinatorHarness job = primary(3);
  job.give(coordinator_event::SentinelReport{k1, "killed", true, Incarnation{2}, kJob});
  job.give(coordinator_event::SentinelReport{k2, "hangs", false, Incarnation{1}, kJob});
  job.stopped(k3, 1);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
}

/// Another coordinator may have replaced the dead member's view by one without it.
TEST(CoordinatorQuorum, TheDeadDoNotConsentIfTheyHadNotAcceptedThisIncarnationYet) {
  const View view = old_view(5, 3);
  CoordinatorHarness job(quorum_options(), log_with(view));
  ASSERT_EQ(job.coordinator.incarnation(), Incarnation{2});
  return_running(job, k3, view);
  job.give(coordinator_event::SentinelReport{k1, "killed", true, Incarnation{1}, kJob});
  job.give(coordinator_event::SentinelReport{k2, "killed", true, Incarnation{1}, kJob});
  job.pass(milliseconds(2100), {k3});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming) << "1 of 3";
}

TEST(CoordinatorQuorum, TheDeadOfAnEarlierIncarnationDoNotConsentInTheNext) {
  CoordinatorHarness job = primary(3);
  const View view = job.view();
  job.give(coordinator_event::SentinelReport{k1, "killed", true, Incarnation{1}, kJob});
  lose(job, {k2, k3});
  ASSERT_TRUE(come_back(job, k3, value(view.id), 4));  // it has obeyed another coordinator since
  job.say(k3, running_in(job, view, 1));
  job.pass(milliseconds(2100), {k3});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming)
      << "member 1 may have been counted elsewhere";
}

/// The times of several losses of the quorum are not added up.
TEST(CoordinatorQuorum, TheTimeWithoutAQuorumBeginsAnewWhenEverybodyIsBack) {
  CoordinatorOptions options = quorum_options();
  options.min_workers_timeout = seconds(20);
  const View view = old_view(5, 2);
  CoordinatorHarness job(options, log_with(view));
  return_running(job, k2, view);
  job.pass(milliseconds(2500), {k2});
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  ASSERT_TRUE(job.noted("no_quorum"));
  return_running(job, k1, view);
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  job.pass(seconds(30), {k1, k2});
  lose(job, {k1});
  job.stopped(k2, 12);
  job.pass(seconds(1), {k2});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  EXPECT_FALSE(job.outcome());
}

TEST(CoordinatorQuorum, TheTimeWithoutAQuorumBeginsAnewAfterTheNextView) {
  CoordinatorOptions options = quorum_options();
  options.min_workers_timeout = seconds(20);
  options.initial_workers = 3;
  CoordinatorHarness job(options);
  for (int i = 0; i < 3; ++i) {
    (void)job.join();
  }
  job.start(k1, 1);
  const View view = job.view();
  lose(job, {k2, k3});
  job.stopped(k1, 1);
  job.pass(seconds(1), {k1});
  return_stopped(job, k3, view, 1);
  ASSERT_EQ(job.view_members(), (std::vector<MemberId>{k1, k3}));
  job.start(k1, 2);
  job.pass(seconds(30), {k1, k3});
  lose(job, {k1});
  job.stopped(k3, 2);
  job.pass(seconds(1), {k3});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  EXPECT_FALSE(job.outcome());
}

TEST(CoordinatorQuorum, TheDeadDoNotConsentIfTheyObeyedAnotherOfTheSameNumber) {
  CoordinatorHarness job = primary(3);
  job.give(coordinator_event::SentinelReport{k1, "killed", true, Incarnation{1}, kJob + 1});
  job.give(coordinator_event::SentinelReport{k2, "killed", true, Incarnation{1}, kJob + 1});
  job.stopped(k3, 1);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting) << "the other one may count them, too";
}

TEST(CoordinatorQuorum, ALeaverConsentsOnceItHasSaidThatItIsGone) {
  CoordinatorHarness job = primary(2);
  job.give(coordinator_event::DrainAsked{k1, "operator"});
  job.stopped(k1, 2);
  job.stopped(k2, 2);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting)
      << "the half that stays has not the first member";
  job.say(k1, Left{Incarnation{1}});
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k2}));
}

TEST(CoordinatorQuorum, WhoIsEvictedJoinsAgainUnderItsIdAndWithoutWork) {
  CoordinatorHarness job = primary(3);
  const View before = job.view();
  lose(job, {k3});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  ASSERT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2}));
  EXPECT_FALSE(come_back(job, k3, value(before.id))) << "its view is over";
  EXPECT_EQ(job.all<coordinator_effect::Refuse>().back().refusal, Refusal::kEvicted);
  ASSERT_TRUE(join_again(job, k3, before));
  EXPECT_TRUE(job.sent<Dismiss>(k3).empty());
  job.stopped(k1, 1);  // at the boundary
  job.stopped(k2, 1);
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2, k3}));
  EXPECT_FALSE(job.view().bases.empty());
}

TEST(CoordinatorQuorum, WhoJoinsAgainCountsAsTheMemberOfTheOldViewThatItWas) {
  CoordinatorHarness job = primary(5);
  const View before = job.view();
  lose(job, {k4, k5});
  for (const MemberId member : {k1, k2, k3}) {
    job.stopped(member, 1);
  }
  const View doubtful = job.view();
  lose(job, {k3});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kWaiting) << "2 of 5";
  ASSERT_TRUE(join_again(job, k5, before));
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2, k5}));
  EXPECT_EQ(job.view().bases.size(), 2u) << "nobody knows what member 3 did in the last one";
  EXPECT_EQ(job.view().bases.back().id, doubtful.id);
}

TEST(CoordinatorQuorum, TheViewAfterOneInDoubtNeedsAMajorityOfBoth) {
  CoordinatorHarness job = primary(5);
  lose(job, {k4, k5});
  for (const MemberId member : {k1, k2, k3}) {
    job.stopped(member, 1);
  }
  ASSERT_EQ(job.view_members().size(), 3u);
  ASSERT_EQ(job.view().bases.size(), 1u);
  lose(job, {k3});  // it is not known whether it entered the view and committed steps
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting) << "2 of 3, but also 2 of 5";
}

TEST(CoordinatorQuorum, TheViewAfterTwoInDoubtStillNeedsAMajorityOfTheOneBeforeThem) {
  CoordinatorHarness job = primary(5);
  const View before = job.view();
  lose(job, {k4, k5});
  for (const MemberId member : {k1, k2, k3}) {
    job.stopped(member, 1);
  }
  lose(job, {k3});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  ASSERT_TRUE(join_again(job, k5, before));
  ASSERT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2, k5}));
  ASSERT_EQ(job.view().bases.size(), 2u);
  ASSERT_EQ(job.view().bases.front().id, before.id);
  lose(job, {k5});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting) << "2 of 3 twice, but also 2 of 5";
  ASSERT_TRUE(join_again(job, k4, before));
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2, k4}));
  ASSERT_EQ(job.view().bases.size(), 3u);
  EXPECT_EQ(job.view().bases.front().id, before.id);
}

/// For example two members whose link is cut, and of which neither is evicted, because both are
/// needed for the majority.
TEST(CoordinatorQuorum, TheSameMembersMayChangeTheirViewForEver) {
  CoordinatorHarness job = primary(3);
  for (std::size_t views = 0; views < 2 * kViewBasesMax; ++views) {
    for (const MemberId member : {k1, k2, k3}) {
      job.stopped(member, 1);  // it has contributed to the first step and received no sum
    }
    ASSERT_EQ(job.coordinator.phase(), JobPhase::kRunning) << views;
    ASSERT_EQ(job.view().bases.size(), 1u);
  }
}

TEST(CoordinatorQuorum, TheDeadOfAnOlderBaseConsentToo) {
  CoordinatorHarness job = primary(5);
  lose(job, {k4, k5});
  for (const MemberId member : {k1, k2, k3}) {
    job.stopped(member, 1);
  }
  lose(job, {k3});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  job.give(coordinator_event::SentinelReport{k4, "killed", true, Incarnation{1}, kJob});
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2}));
}

TEST(CoordinatorQuorum, AViewThatHasCommittedAStepIsTheOnlyBase) {
  CoordinatorHarness job = primary(5);
  lose(job, {k4, k5});
  for (const MemberId member : {k1, k2, k3}) {
    job.stopped(member, 1);
  }
  job.start(k1, 2);
  lose(job, {k3});
  job.stopped(k1, 2);
  job.stopped(k2, 2);
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2}));
  ASSERT_EQ(job.view().bases.size(), 1u);
  EXPECT_EQ(job.view().bases[0].members.size(), 3u);
}

TEST(CoordinatorQuorum, AViewToWhichSomebodyGaveNothingIsNoBase) {
  CoordinatorHarness job = primary(3);
  lose(job, {k3});
  job.stopped(k1, 1);
  job.stopped(k2, 1);
  const View doubtful = job.view();
  job.say(k1, Stopped{doubtful.id, Step{1}, {}, false, true, {}, "", Step{}, false});
  job.stopped(k2, 1);
  ASSERT_GT(job.view().id, doubtful.id);
  EXPECT_EQ(job.view().bases, doubtful.bases);
}

TEST(CoordinatorQuorum, AJobWithoutAViewIsLedByWhoStartedItEvenIfMembersHaveVotedElsewhere) {
  CoordinatorHarness job(quorum_options());
  const MemberId member = job.connect();
  job.give(coordinator_event::ConnectionLost{member, "reset"});
  ASSERT_TRUE(come_back(job, member, 0, 2));
  Resume resume;
  resume.incarnation = job.coordinator.incarnation();
  resume.phase = ResumePhase::kReady;
  job.say(member, resume);
  EXPECT_EQ(job.coordinator.incarnation(), Incarnation{3});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
}

TEST(CoordinatorQuorum, OneThatHasVotedForAnotherInThisIncarnationIsAskedInTheNext) {
  CoordinatorHarness job = primary(2);
  Hello hello;
  hello.member = k2;
  hello.job = kJob;
  hello.incarnation = Incarnation{1};
  hello.author = kJob + 1;
  hello.view = job.view().id;
  job.give(coordinator_event::ConnectionLost{k2, "reset"});
  job.give(coordinator_event::WorkerConnected{9, hello});
  EXPECT_EQ(job.coordinator.incarnation(), Incarnation{2});
}

TEST(Coordinator, ThatIsOvertakenTakesBackWhomItEvictedAndTheOtherTookIn) {
  CoordinatorHarness job = primary(3);
  const View mine = job.view();
  job.stopped(k3, 0);  // it had reported that it committed step 1
  ASSERT_TRUE(job.noted("evicted"));
  lose(job, {k1, k2});
  EXPECT_FALSE(come_back(job, k3, value(mine.id)));
  const View theirs = old_view(id_base(Incarnation{2}) + 1, 3, 5);
  for (const MemberId member : {k3, k1, k2}) {
    ASSERT_TRUE(come_back(job, member, value(theirs.id), 2));
    job.say(member, running_in(job, theirs, 7));
  }
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.view().id, theirs.id);
  lose(job, {k3});
  EXPECT_TRUE(come_back(job, k3, value(theirs.id), 2)) << "the view is another one";
}

/// Its own view of five had been started by all.
TEST(Coordinator, ThatIsOvertakenCountsWhoStartsInTheViewThatItIsToldOf) {
  CoordinatorHarness job = primary(5);
  const View theirs = old_view(id_base(Incarnation{2}) + 1, 3, 1);
  for (const MemberId member : {k1, k2, k3}) {
    ASSERT_TRUE(come_back(job, member, value(theirs.id), 2));
    job.say(member, running_in(job, theirs, 1));
  }
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  job.say(k1, Formed{theirs.id});
  job.say(k1, Synced{theirs.id});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.view().id, theirs.id);
}

TEST(Coordinator, ThatIsOvertakenFollowsAMemberThatKnowsMore) {
  CoordinatorHarness job = primary(3);
  const View mine = job.view();
  lose(job, {k2, k3});
  job.stopped(k1, 1);
  View theirs = old_view(id_base(Incarnation{2}) + 1, 3, 5);
  theirs.members.erase(theirs.members.begin());
  for (const MemberId member : {k2, k3}) {
    ASSERT_TRUE(come_back(job, member, value(theirs.id), 2));
    job.say(member, running_in(job, theirs, 7));
  }
  EXPECT_EQ(job.coordinator.incarnation(), Incarnation{3});
  job.say(k1, stopped_in(job, mine, 1));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.view().id, theirs.id);
}

}  // namespace
}  // namespace mayfly::elastic
