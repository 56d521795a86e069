#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/elastic/resume_fixture.hpp"

// All members with the job's state are lost. The remaining workers must ask for a checkpoint first,
// also if their connections broke meanwhile or the coordinator is another one.

namespace mayfly::elastic {
namespace {

/// Makes a spare return that waits for its first view, with the state that it has loaded.
void return_ready(CoordinatorHarness& job, MemberId member, std::uint64_t committed = 0) {
  ASSERT_TRUE(come_back(job, member, 0));
  Resume ready;
  ready.incarnation = job.coordinator.incarnation();
  ready.phase = ResumePhase::kReady;
  ready.committed = Step{committed};
  job.say(member, ready);
}

/// Makes a member that was evicted before its first view join again under its id; it has not
/// reported anything yet.
void join_under_its_id(CoordinatorHarness& job, MemberId member) {
  Hello hello;
  hello.member = member;
  hello.job = kJob;
  hello.incarnation = Incarnation{1};
  hello.author = kJob;
  hello.joins_again = true;
  const std::size_t before = job.all<coordinator_effect::Accept>().size();
  job.give(coordinator_event::WorkerConnected{++job.connections, hello});
  ASSERT_EQ(job.all<coordinator_effect::Accept>().size(), before + 1);
}

/// A job with members 1 and 2 at step 10, the spare 3, and standbys.
CoordinatorHarness with_spare_and_standbys() {
  CoordinatorOptions options = quorum_options();
  options.initial_workers = options.view_max = 2;
  CoordinatorHarness job(options);
  for (int i = 0; i < 3; ++i) {
    (void)job.join();
  }
  job.start(k1, 10);
  job.start(k2, 10);
  return job;
}

/// A coordinator that continues from the log of an earlier one.
CoordinatorHarness resumed(const View& view) {
  CoordinatorOptions options;
  options.identity = 9;
  return {options, log_with(view)};
}

TEST(CoordinatorLostState, ASpareWhoseConnectionBrokeOnceJoinsAgainToBeOfferedACheckpoint) {
  for (const std::uint64_t loaded : {0, 7}) {
    CoordinatorOptions options;
    options.identity = kJob;
    options.initial_workers = options.view_max = 2;
    CoordinatorHarness job(options);
    for (int i = 0; i < 2; ++i) {
      (void)job.join();
    }
    const MemberId spare = job.join(loaded);
    job.start(k1, 10);
    job.start(k2, 10);
    lose(job, {spare});
    return_ready(job, spare, loaded);
    lose(job, {k1, k2});
    ASSERT_EQ(job.sent<Dismiss>(spare).size(), 1u);
    EXPECT_TRUE(job.sent<Dismiss>(spare)[0].may_rejoin);
    EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
    const MemberId again = job.join(8);
    EXPECT_EQ(job.view_members(), std::vector<MemberId>{again});
    EXPECT_EQ(job.view().committed, Step{8});
  }
}

/// When the spare connected, no member had trained yet.
TEST(CoordinatorLostState, ASpareThatConnectedBeforeTheFirstViewJoinsAgainToBeOfferedACheckpoint) {
  CoordinatorOptions options;
  options.initial_workers = options.view_max = 2;
  CoordinatorHarness job(options);
  const std::vector<MemberId> workers = {job.connect(), job.connect(), job.connect()};
  for (const MemberId worker : workers) {
    job.say(worker, Ready{});
  }
  ASSERT_EQ(job.view_members(), (std::vector<MemberId>{k1, k2}));
  job.start(k1, 10);
  job.start(k2, 10);
  lose(job, {k1, k2});
  ASSERT_EQ(job.sent<Dismiss>(k3).size(), 1u);
  EXPECT_TRUE(job.sent<Dismiss>(k3)[0].may_rejoin);
  const MemberId again = job.join(8);
  EXPECT_EQ(job.view_members(), std::vector<MemberId>{again});
  EXPECT_EQ(job.view().committed, Step{8});
}

/// The observer was offered a checkpoint, but the other member had a newer state and has written
/// newer checkpoints since.
TEST(CoordinatorLostState, AnObserverOfTheFirstViewThatGotNoStateJoinsAgain) {
  CoordinatorOptions options;
  options.initial_workers = 2;
  options.observe_from_bytes = 1000;
  CoordinatorHarness job(options);
  const std::vector<MemberId> workers = {job.connect(), job.connect()};
  job.say(workers[0], Ready{Step{9}, 5000});
  job.say(workers[1], Ready{Step{7}, 5000});
  ASSERT_TRUE(job.view().has_observers());
  job.start(workers[0], 20);
  lose(job, {workers[0]});
  job.stopped(workers[1], 7);
  ASSERT_EQ(job.sent<Dismiss>(workers[1]).size(), 1u);
  EXPECT_TRUE(job.sent<Dismiss>(workers[1])[0].may_rejoin);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
}

/// Two crashes in a row. Member 5 alone committed step 11 in view 7, and was lost. Then the
/// coordinator was, just after it had published view 8 with the members 1 and 2. Member 3 is a
/// spare.
TEST(CoordinatorLostState, TheOnlyHolderOfTheNewestStateHasAPlaceBeforeSparesThatCameEarlier) {
  for (const bool is_full : {false, true}) {
    CoordinatorOptions options;
    options.identity = 9;
    options.view_max = 2;
    const View last = old_view(8, 2);
    CoordinatorHarness job(options, log_with(last));
    View former = old_view(7, 1);
    former.members.push_back({k5, "", {}, 0, 0});
    return_ready(job, k3);
    return_stopped(job, k5, former, 11);
    return_stopped(job, k1, last, 10);
    if (is_full) {
      return_stopped(job, k2, last, 10);
    }
    job.pass(seconds(3), {k1, k2, k3, k5});
    ASSERT_EQ(job.coordinator.phase(), JobPhase::kRunning);
    EXPECT_EQ(job.view_members(),
              is_full ? (std::vector<MemberId>{k1, k2, k5}) : (std::vector<MemberId>{k1, k5}));
    EXPECT_EQ(job.view().committed, Step{11});
    EXPECT_FALSE(job.noted("restarted"));
  }
}

/// The member from which they should receive the state is lost, and no other has committed the step
/// of their view.
TEST(CoordinatorLostState, AMemberThatIsBehindItsViewGoesOnWithWhatItHasTrained) {
  CoordinatorHarness job = running_job(1, 10);
  const MemberId trained = job.join(2);
  job.stopped(k1, 10);
  job.start(k1, 12);
  job.start(trained, 12);
  const MemberId ahead = job.join(14);
  job.stopped(k1, 12);
  job.stopped(trained, 12);
  ASSERT_EQ(job.view().committed, Step{14});
  lose(job, {k1, ahead});
  job.stopped(trained, 12);
  EXPECT_TRUE(job.sent<Dismiss>(trained).empty());
  EXPECT_EQ(job.view_members(), std::vector<MemberId>{trained});
  EXPECT_EQ(job.view().committed, Step{12});
}

/// Only a coordinator that leads the job offers a checkpoint.
TEST(CoordinatorLostState, ACoordinatorThatHadNoQuorumForAWhileIsInChargeWhenSparesJoinAgain) {
  CoordinatorHarness job = with_spare_and_standbys();
  lose(job, {k1, k2});
  EXPECT_TRUE(job.noted("no_quorum"));
  EXPECT_FALSE(job.coordinator.is_in_charge());
  job.give(coordinator_event::SentinelReport{k1, "died", true, Incarnation{1}, kJob});
  ASSERT_EQ(job.sent<Dismiss>(k3).size(), 1u);
  EXPECT_TRUE(job.sent<Dismiss>(k3)[0].may_rejoin);
  EXPECT_TRUE(job.coordinator.is_in_charge());
  job.pass(seconds(7), {k3});
  EXPECT_TRUE(job.sent<NoQuorum>(k3).empty());
}

/// The spare asks for a state before it reports, and is offered none if a member has the state.
TEST(CoordinatorLostState, ASpareThatJoinsAgainUnderItsIdIsShownAsOneThatLoads) {
  CoordinatorHarness job = with_spare_and_standbys();
  lose(job, {k1, k2});
  job.give(coordinator_event::SentinelReport{k1, "died", true, Incarnation{1}, kJob});
  ASSERT_EQ(job.sent<Dismiss>(k3).size(), 1u);
  join_under_its_id(job, k3);
  const std::vector<MemberStatus> members = job.coordinator.members();
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].phase, MemberPhase::kLoading);
  EXPECT_TRUE(job.coordinator.is_in_charge());
}

/// The spare was offered no checkpoint, because other members had the state.
TEST(CoordinatorLostState, ASpareThatJoinedUnderItsIdBesideAStateJoinsAgain) {
  CoordinatorHarness job = with_spare_and_standbys();
  lose(job, {k3});
  join_under_its_id(job, k3);
  Resume ready;
  ready.incarnation = job.coordinator.incarnation();
  ready.phase = ResumePhase::kReady;
  job.say(k3, ready);
  lose(job, {k1, k2});
  job.give(coordinator_event::SentinelReport{k1, "died", true, Incarnation{1}, kJob});
  ASSERT_EQ(job.sent<Dismiss>(k3).size(), 1u);
  EXPECT_TRUE(job.sent<Dismiss>(k3)[0].may_rejoin);
}

/// The spare's connection broke, or its coordinator had just started: it has not asked a
/// coordinator that could have offered it a checkpoint.
TEST(CoordinatorLostState, ASpareThatComesUnderItsIdWhenNobodyIsInChargeJoinsAgain) {
  const View view = old_view(5, 2, 10);
  CoordinatorOptions options = quorum_options();
  options.initial_workers = options.view_max = 2;
  CoordinatorHarness job(options, log_with(view));
  join_under_its_id(job, k3);
  Resume ready;
  ready.incarnation = job.coordinator.incarnation();
  ready.phase = ResumePhase::kReady;
  job.say(k3, ready);
  return_running(job, k1, view, 12);
  return_running(job, k2, view, 12);
  ASSERT_TRUE(job.coordinator.is_in_charge());
  ASSERT_EQ(job.view().id, view.id);
  lose(job, {k1, k2});
  job.give(
      coordinator_event::SentinelReport{k1, "died", true, job.coordinator.incarnation(), kJob});
  ASSERT_EQ(job.sent<Dismiss>(k3).size(), 1u);
  EXPECT_TRUE(job.sent<Dismiss>(k3)[0].may_rejoin);
  join_under_its_id(job, k3);
  ready.incarnation = job.coordinator.incarnation();
  ready.committed = Step{8};
  job.say(k3, ready);
  EXPECT_EQ(job.view_members(), std::vector<MemberId>{k3});
  EXPECT_EQ(job.view().committed, Step{8});
}

/// The spares join again one after the other, and the first must not wait for the others.
TEST(CoordinatorLostState, OfSeveralThatJoinAgainTheFirstFindsNobodyWithAState) {
  CoordinatorHarness job = running_job(1, 10);
  const MemberId first = job.join(2);
  const MemberId second = job.join(3);
  lose(job, {k1});
  ASSERT_EQ(job.sent<Dismiss>(first).size(), 1u);
  ASSERT_EQ(job.sent<Dismiss>(second).size(), 1u);
  lose(job, {first});
  const MemberId again = job.connect();
  for (const MemberStatus& member : job.coordinator.members()) {
    EXPECT_EQ(member.is_dismissed, member.id == second);
  }
  job.say(again, Ready{Step{8}});
  EXPECT_EQ(job.view_members(), std::vector<MemberId>{again});
  EXPECT_EQ(job.view().committed, Step{8});
}

/// --resume would begin with these weights, although there are checkpoints.
TEST(CoordinatorLostState, ASpareDoesNotSaveItsFirstWeightsAsTheLastState) {
  for (const bool is_asked : {false, true}) {
    CoordinatorOptions options;
    options.min_workers = options.initial_workers = options.view_max = 2;
    options.min_workers_timeout = seconds(5);
    CoordinatorHarness job(options);
    for (int i = 0; i < 2; ++i) {
      (void)job.join();
    }
    const MemberId spare = job.join();
    job.start(k1, 10);
    job.start(k2, 10);
    lose(job, {k1, k2});
    EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
    if (is_asked) {
      job.give(coordinator_event::StopAsked{"operator"});
    }
    job.pass(seconds(6), {spare});
    EXPECT_EQ(job.outcome(), is_asked ? Outcome::kStopped : Outcome::kTooFewWorkers);
    ASSERT_EQ(job.sent<Dismiss>(spare).size(), 1u);
    EXPECT_FALSE(job.sent<Dismiss>(spare)[0].write_checkpoint);
  }
}

TEST(CoordinatorLostState, ASpareThatComesBackAloneToARestartedCoordinatorJoinsAgain) {
  CoordinatorHarness job = resumed(old_view(5, 2, 10));
  return_ready(job, k3);
  job.pass(milliseconds(2100), {k3});
  ASSERT_EQ(job.sent<Dismiss>(k3).size(), 1u);
  EXPECT_TRUE(job.sent<Dismiss>(k3)[0].may_rejoin);
}

/// The log has only the step after which the view began, which the spare may have loaded, too.
TEST(CoordinatorLostState, ASpareThatHasWhatTheLastViewBeganWithJoinsAgainIfItComesBackAlone) {
  for (const std::uint64_t loaded : {0, 7}) {
    CoordinatorHarness job = resumed(old_view(1, 2, loaded));
    return_ready(job, k3, loaded);
    job.pass(milliseconds(2100), {k3});
    ASSERT_EQ(job.sent<Dismiss>(k3).size(), 1u);
    EXPECT_TRUE(job.sent<Dismiss>(k3)[0].may_rejoin);
    EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
    const MemberId again = job.join(loaded);  // there was no newer checkpoint
    EXPECT_EQ(job.view_members(), std::vector<MemberId>{again});
    EXPECT_EQ(job.view().committed, Step{loaded});
  }
}

TEST(CoordinatorLostState, ASpareThatComesBackBesideAMemberOfTheViewStays) {
  const View view = old_view(5, 2, 10);
  CoordinatorHarness job = resumed(view);
  return_ready(job, k3);
  return_stopped(job, k1, view);
  job.pass(milliseconds(2100), {k1, k3});
  EXPECT_TRUE(job.sent<Dismiss>(k3).empty());
  EXPECT_EQ(job.view_members(), (std::vector<MemberId>{k1, k3}));
}

TEST(CoordinatorLostState, AnObserverThatComesBackWithoutTheStateJoinsAgainIfItIsAlone) {
  for (const auto& [began_after, is_running] :
       {std::pair(10, false), std::pair(1, false), std::pair(10, true)}) {
    View view = old_view(5, 2, static_cast<std::uint64_t>(began_after));
    view.members.push_back({k3, "", {}, 0, 0, view.id});
    CoordinatorHarness job = resumed(view);
    ASSERT_TRUE(come_back(job, k3, value(view.id)));
    // A running member also reports the step of the others.
    job.say(k3, is_running ? running_in(job, view, 12) : stopped_in(job, view, 0));
    job.pass(milliseconds(2100), {k3});
    if (is_running) {
      job.stopped(k3, 0);
    }
    ASSERT_EQ(job.sent<Dismiss>(k3).size(), 1u);
    EXPECT_TRUE(job.sent<Dismiss>(k3)[0].may_rejoin);
    EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  }
}

/// It is not known what the member loaded at first, but it has trained since.
TEST(CoordinatorLostState, AMemberThatCameBackBehindAndHasTrainedSinceGoesOnWithThat) {
  const View view = old_view(5, 2, 10);
  CoordinatorHarness job = resumed(view);
  return_stopped(job, k1, view, 11);
  return_stopped(job, k2, view, 5);
  ASSERT_EQ(job.view().committed, Step{11});
  job.start(k1, 14);
  job.start(k2, 14);
  const MemberId ahead = job.join(16);
  job.stopped(k1, 14);
  job.stopped(k2, 14);
  ASSERT_EQ(job.view().committed, Step{16});
  lose(job, {k1, ahead});
  job.stopped(k2, 14);
  EXPECT_TRUE(job.sent<Dismiss>(k2).empty());
  EXPECT_EQ(job.view_members(), std::vector<MemberId>{k2});
  EXPECT_EQ(job.view().committed, Step{14});
}

TEST(CoordinatorLostState, ARestartedCoordinatorSaysThatTheStepsOnItsLogAreLost) {
  CoordinatorHarness job = resumed(old_view(5, 2, 10));
  EXPECT_EQ(job.coordinator.committed(), Step{10});
  const MemberId fresh = job.join();
  job.pass(seconds(31), {fresh});
  EXPECT_EQ(job.view_members(), std::vector<MemberId>{fresh});
  EXPECT_TRUE(job.noted("restarted"));
  EXPECT_EQ(job.coordinator.committed(), Step{});
}

}  // namespace
}  // namespace mayfly::elastic
