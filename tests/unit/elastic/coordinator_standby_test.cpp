#include <gtest/gtest.h>

#include "tests/unit/elastic/resume_fixture.hpp"

// Standbys: coordinators that wait until members connect to them.

namespace mayfly::elastic {
namespace {

/// A member of this job connects that has lost its coordinator; returns how it is refused, if it
/// is.
std::optional<Refusal> refusal_of(CoordinatorHarness& standby, MemberId member, std::uint64_t job,
                                  const std::string& model = "") {
  Hello hello;
  hello.member = member;
  hello.job = hello.author = job;
  hello.incarnation = Incarnation{1};
  hello.view = ViewId{5};
  if (!model.empty()) {
    hello.fingerprint = {{"model", model}};
  }
  const std::size_t before = standby.all<coordinator_effect::Refuse>().size();
  standby.give(coordinator_event::WorkerConnected{++standby.connections, hello});
  const auto all = standby.all<coordinator_effect::Refuse>();
  return all.size() > before ? std::optional(all.back().refusal) : std::nullopt;
}

TEST(Standby, CountsThoseThatJoinAgainAndLearnsOfTheirView) {
  CoordinatorHarness standby(quorum_options(true));
  const View view = old_view(5, 3);
  ASSERT_TRUE(join_again(standby, k2, view));
  EXPECT_EQ(standby.coordinator.view()->id, view.id);
  ASSERT_TRUE(join_again(standby, k3, view));
  standby.pass(milliseconds(2100), {k2, k3});
  EXPECT_EQ(standby.view_members(), (std::vector<MemberId>{k2, k3}));
  EXPECT_EQ(standby.view().bases.back().id, view.id) << "they may have committed a step of it";
}

TEST(Standby, BelievesThatAViewDiedToWhichOneThatJoinsAgainGaveNothing) {
  CoordinatorHarness standby(quorum_options(true));
  View view = old_view(6, 3);
  view.bases = {{ViewId{5}, {k1, k2, k3}}};
  ASSERT_TRUE(join_again(standby, k2, view, false));
  ASSERT_TRUE(join_again(standby, k3, view));
  standby.pass(milliseconds(2100), {k2, k3});
  EXPECT_EQ(standby.view().bases, view.bases);
}

/// Without a report it is not known whether the member contributed to the view, so its view stays
/// among the bases.
TEST(Standby, BelievesThatAViewMayLiveOfWhichOneThatJoinsAgainReportsNothing) {
  CoordinatorHarness standby(quorum_options(true));
  View view = old_view(6, 3);
  view.bases = {{ViewId{5}, {k2, k3}}};
  ASSERT_TRUE(join_again(standby, k2, view));
  ASSERT_TRUE(join_again(standby, k3, view));
  standby.pass(milliseconds(2100), {k2, k3});
  ASSERT_EQ(standby.view_members(), (std::vector<MemberId>{k2, k3}));
  ASSERT_EQ(standby.view().bases.size(), 2u);
  EXPECT_EQ(standby.view().bases.back().id, view.id);
}

TEST(Standby, NeedsAMajorityOfAViewOfWhichThoseThatJoinAgainReportNothing) {
  CoordinatorHarness standby(quorum_options(true));
  View view = old_view(6, 5);
  view.bases = {{ViewId{5}, {k1, k2, k3}}};
  ASSERT_TRUE(join_again(standby, k2, view));
  ASSERT_TRUE(join_again(standby, k3, view));
  standby.pass(milliseconds(2100), {k2, k3});
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kResuming) << "2 of 3, but also 2 of 5";
}

TEST(Standby, TakesNobodyInBeforeItIsInCharge) {
  CoordinatorHarness standby(quorum_options(true));
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kStandby);
  standby.give(coordinator_event::WorkerConnected{1, Hello{}});
  ASSERT_EQ(standby.all<coordinator_effect::Refuse>().size(), 1u);
  EXPECT_EQ(standby.all<coordinator_effect::Refuse>()[0].refusal, Refusal::kElsewhere);
}

TEST(Standby, TakesOverWithAMajorityInAHigherIncarnation) {
  CoordinatorHarness standby(quorum_options(true));
  const View view = old_view(5, 3);
  return_running(standby, k2, view);
  EXPECT_EQ(standby.coordinator.incarnation(), Incarnation{2});
  EXPECT_EQ(standby.coordinator.job(), kJob);
  return_running(standby, k3, view);
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kResuming) << "the third may still come";
  standby.pass(milliseconds(2100), {k2, k3});
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kStopping);
  standby.stopped(k2, 12);
  standby.stopped(k3, 12);
  EXPECT_EQ(standby.view_members(), (std::vector<MemberId>{k2, k3}));
}

TEST(Standby, DisturbsNobodyIfAllCome) {
  CoordinatorHarness standby(quorum_options(true));
  const View view = old_view(5, 3);
  for (const MemberId member : {k3, k1, k2}) {
    return_running(standby, member, view);
  }
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kRunning);
  EXPECT_TRUE(standby.sent<Stop>(k1).empty());
}

/// A worker of an earlier job has the same token and this standby in its list.
TEST(Standby, IsNotKeptFromItsJobByALeftoverOfAnotherOne) {
  constexpr std::uint64_t kEarlierJob = 77;
  CoordinatorHarness standby(quorum_options(true));
  const View view = old_view(5, 3);
  ASSERT_EQ(refusal_of(standby, k3, kEarlierJob), std::nullopt);
  standby.say(k3, running_in(standby, view, 90));
  EXPECT_EQ(standby.coordinator.job(), kEarlierJob);
  for (int looks = 0; looks < 13 && standby.sent<NoQuorum>(k3).empty(); ++looks) {
    EXPECT_EQ(refusal_of(standby, k1, kJob), Refusal::kElsewhere);
    standby.pass(milliseconds(510), {k3});
  }
  ASSERT_EQ(standby.sent<NoQuorum>(k3).size(), 1u);
  EXPECT_EQ(refusal_of(standby, k3, kEarlierJob), Refusal::kElsewhere) << "it is not its turn";
  for (const MemberId member : {k1, k2}) {
    return_running(standby, member, view);
  }
  EXPECT_EQ(standby.coordinator.job(), kJob);
  EXPECT_FALSE(standby.coordinator.has_led());
  standby.pass(milliseconds(2100), {k1, k2});
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kStopping);
  EXPECT_TRUE(standby.coordinator.has_led());
  EXPECT_EQ(standby.coordinator.committed(), Step{12}) << "not the step of the other job";
  EXPECT_EQ(refusal_of(standby, k3, kEarlierJob), Refusal::kElsewhere);
  ViewLog log;
  Bytes file;
  for (const auto& append : standby.all<coordinator_effect::Append>()) {
    const Bytes bytes = log.add(append.record);
    file.insert(file.end(), bytes.begin(), bytes.end());
  }
  const Result<LogContents> found = ViewLog::replay(file);
  ASSERT_TRUE(found.ok()) << found.error().detail;
  EXPECT_EQ(found.value().job, kJob);
}

TEST(Standby, WaitsForMembersOfAnotherJobOnlyAsLongAsTheyTry) {
  CoordinatorHarness standby(quorum_options(true));
  ASSERT_EQ(refusal_of(standby, k3, 77), std::nullopt);
  EXPECT_EQ(refusal_of(standby, k1, kJob), Refusal::kElsewhere);
  lose(standby, {k3});
  EXPECT_EQ(refusal_of(standby, k3, 77), Refusal::kElsewhere);
  standby.pass(milliseconds(3100), {});
  EXPECT_EQ(refusal_of(standby, k3, 77), std::nullopt);
}

/// The member trains on, and would end without having saved its state.
TEST(Standby, RefusesNoMemberForGoodWhoseJobItDoesNotKnow) {
  CoordinatorOptions options = quorum_options(true);
  options.fingerprint = {{"model", "resnet20"}};
  CoordinatorHarness standby(options);
  EXPECT_EQ(refusal_of(standby, k1, kJob, "resnet56"), Refusal::kElsewhere);
  EXPECT_EQ(refusal_of(standby, k1, kJob, "resnet20"), std::nullopt);
}

TEST(Standby, ThatHasEndedSendsWorkersElsewhere) {
  CoordinatorHarness standby(quorum_options(true));
  return_running(standby, k2, old_view(5, 3));
  standby.give(coordinator_event::StopAsked{"operator"});
  standby.pass(seconds(9), {k2});
  ASSERT_EQ(standby.outcome(), Outcome::kStopped);
  EXPECT_EQ(refusal_of(standby, k2, kJob), Refusal::kElsewhere) << "the job goes on";
  standby.give(coordinator_event::WorkerConnected{99, Hello{}});
  EXPECT_EQ(standby.all<coordinator_effect::Refuse>().back().refusal, Refusal::kElsewhere);
}

TEST(Standby, SendsAMinorityAwayAndTakesItBackLater) {
  CoordinatorHarness standby(quorum_options(true));
  const View view = old_view(5, 3);
  return_running(standby, k2, view);
  standby.pass(milliseconds(6100), {k2});
  EXPECT_EQ(standby.sent<NoQuorum>(k2).size(), 1u);
  EXPECT_TRUE(standby.sent<Stop>(k2).empty()) << "its view may be doing well";
  ASSERT_TRUE(come_back(standby, k2, 5, 2));
  standby.say(k2, running_in(standby, view, 12));
  return_running(standby, k3, view);
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kResuming) << "the first may still come";
  standby.pass(milliseconds(2100), {k2, k3});
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kStopping);
}

TEST(Standby, NeedsAMajorityOfTheNewestViewThatAnybodyKnows) {
  CoordinatorHarness standby(quorum_options(true));
  const View older = old_view(5, 3);
  View newer = old_view(6, 2, 12);
  newer.bases = {{ViewId{5}, {k1, k2, k3}}};
  return_stopped(standby, k3, older);
  return_running(standby, k2, newer, 13);
  standby.pass(milliseconds(2100), {k2, k3});
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kResuming)
      << "the first member of view 6 is missing";
}

TEST(Standby, ThatIsToStopEndsByItselfAndRecordsNoEndOfAJob) {
  CoordinatorHarness standby(quorum_options(true));
  standby.give(coordinator_event::StopAsked{"operator"});
  EXPECT_FALSE(standby.outcome()) << "members may be on their way";
  standby.pass(milliseconds(2100), {});
  EXPECT_EQ(standby.outcome(), Outcome::kStopped);
  EXPECT_TRUE(appended<log_record::JobEnded>(standby).empty()) << "it knows of none";
}

TEST(Standby, ThatIsToStopSendsAMinorityAwayFirst) {
  CoordinatorHarness standby(quorum_options(true));
  return_running(standby, k2, old_view(5, 3));
  standby.give(coordinator_event::StopAsked{"operator"});
  standby.pass(seconds(2), {k2});
  EXPECT_FALSE(standby.outcome());
  standby.pass(seconds(7), {k2});
  EXPECT_EQ(standby.sent<NoQuorum>(k2).size(), 1u);
  EXPECT_TRUE(standby.sent<Dismiss>(k2).empty()) << "its view may be doing well";
  EXPECT_EQ(standby.outcome(), Outcome::kStopped);
}

TEST(Standby, ThatIsToStopStopsTheJobIfItHasAMajority) {
  CoordinatorHarness standby(quorum_options(true));
  const View view = old_view(5, 3);
  standby.give(coordinator_event::StopAsked{"operator"});
  for (const MemberId member : {k1, k2, k3}) {
    return_running(standby, member, view);
  }
  for (const MemberId member : {k1, k2, k3}) {
    EXPECT_EQ(standby.sent<Stop>(member).size(), 1u);
    standby.stopped(member, 13);
  }
  EXPECT_EQ(standby.outcome(), Outcome::kStopped);
  EXPECT_EQ(appended<log_record::JobEnded>(standby).size(), 1u);
}

TEST(Standby, ThatKnowsOfNoJobPausesNone) {
  CoordinatorHarness standby(quorum_options(true));
  standby.give(coordinator_event::PauseAsked{true});
  EXPECT_TRUE(appended<log_record::Paused>(standby).empty()) << "its log must begin with the job";
  const View view = old_view(5, 3);
  for (const MemberId member : {k1, k2, k3}) {
    return_running(standby, member, view);
  }
  EXPECT_EQ(standby.coordinator.phase(), JobPhase::kRunning);
  EXPECT_TRUE(standby.sent<Stop>(k1).empty());
}

TEST(Standby, EndsAJobWhoseRemainingMembersAreDone) {
  CoordinatorHarness standby(quorum_options(true));
  const View view = old_view(5, 3);
  ASSERT_TRUE(come_back(standby, k3, 5));
  Resume resume = stopped_in(standby, view, 40);
  resume.last->finished = true;
  standby.say(k3, resume);
  EXPECT_FALSE(standby.outcome());
  standby.pass(milliseconds(2100), {k3});
  EXPECT_EQ(standby.outcome(), Outcome::kDone);
}

}  // namespace
}  // namespace mayfly::elastic
