// Parameter servers: members that do not count as workers.

#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

namespace mayfly::elastic {
namespace {

using Members = std::vector<MemberId>;

constexpr const char* kServer = "server";

MemberId join(CoordinatorHarness& job, const std::string& address) {
  const MemberId member = job.connect(address);
  job.say(member, Ready{Step{0}});
  return member;
}

CoordinatorOptions with_servers(std::uint32_t initial, std::uint32_t min_workers = 1) {
  CoordinatorOptions made;
  made.initial_workers = initial;
  made.min_workers = min_workers;
  made.min_workers_timeout = seconds(5);
  made.steps_need_all_members = false;
  made.counts_as_worker = [](const std::string& address) { return address != kServer; };
  return made;
}

TEST(CoordinatorServers, LostWithOneWorkerLeftLeaveAViewAtOnce) {
  CoordinatorHarness job(with_servers(2));
  const MemberId server = join(job, kServer);
  const MemberId worker = join(job, "worker");
  ASSERT_EQ(job.view_members(), (Members{server, worker}));
  job.give(coordinator_event::ConnectionLost{server, "reset"});
  job.stopped(worker, 0);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.view_members(), Members{worker}) << "it says what is lost";
}

TEST(CoordinatorServers, AreNotWaitedForInThePlaceOfWorkers) {
  CoordinatorHarness job(with_servers(4, 2));
  const MemberId first = join(job, kServer);
  const MemberId second = join(job, kServer);
  const MemberId stays = join(job, "worker");
  const MemberId goes = join(job, "worker");
  ASSERT_EQ(job.view_members().size(), 4U);
  job.give(coordinator_event::ConnectionLost{goes, "reset"});
  for (const MemberId member : {first, second, stays}) {
    job.stopped(member, 0);
  }
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting) << "three members, but one worker of two";
  const MemberId late = join(job, "worker");
  EXPECT_EQ(job.view_members(), (Members{first, second, stays, late}));
}

TEST(CoordinatorServers, WithoutAnyWorkerForTooLongAreDismissed) {
  CoordinatorHarness job(with_servers(3));
  const MemberId first = join(job, kServer);
  const MemberId second = join(job, kServer);
  const MemberId worker = join(job, "worker");
  job.give(coordinator_event::ConnectionLost{worker, "reset"});
  job.stopped(first, 0);
  job.stopped(second, 0);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  job.pass(seconds(6), {first, second});
  EXPECT_EQ(job.outcome(), Outcome::kTooFewWorkers);
  EXPECT_EQ(job.sent<Dismiss>(first)[0].detail, "0 workers are ready, 1 are needed");
}

/// The servers count the steps, and their state has all of them.
TEST(CoordinatorServers, LoseNoStepWithTheLastWorker) {
  CoordinatorHarness job(with_servers(2));
  const MemberId server = join(job, kServer);
  const MemberId worker = join(job, "worker");
  job.start(server, 0);
  job.start(worker, 1);  // workers say one more
  job.give(coordinator_event::ConnectionLost{worker, "reset"});
  job.stopped(server, 0);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kWaiting);
  const MemberId late = join(job, "worker");
  EXPECT_EQ(job.view_members(), (Members{server, late}));
  EXPECT_FALSE(job.noted("restarted")) << "no step is computed again";
}

/// Also if the worker has joined late and does not know the step with which the job began.
TEST(CoordinatorServers, AreNotAskedForTheLastCheckpoint) {
  CoordinatorOptions options = with_servers(2);
  options.first_step = Step{300};
  CoordinatorHarness job(options);
  const MemberId server = job.connect(kServer);
  job.say(server, Ready{Step{300}});
  const MemberId first = job.connect("worker");
  job.say(first, Ready{Step{300}});
  job.start(server, 300);
  job.start(first, 301);
  const MemberId worker = join(job, "worker");
  job.stopped(server, 300);
  job.stopped(first, 301);
  job.start(worker, 1);
  job.give(coordinator_event::ConnectionLost{first, "reset"});
  job.give(coordinator_event::StopAsked{"asked"});
  job.stopped(server, 300);
  job.stopped(worker, 1);
  ASSERT_EQ(job.outcome(), Outcome::kStopped);
  EXPECT_TRUE(job.sent<Dismiss>(worker)[0].write_checkpoint);
  EXPECT_FALSE(job.sent<Dismiss>(server)[0].write_checkpoint);
}

TEST(CoordinatorServers, AreWaitedForBeforeTheFirstView) {
  CoordinatorHarness job(with_servers(3));
  (void)join(job, "worker");
  (void)join(job, "worker");
  EXPECT_FALSE(job.coordinator.view().has_value());
  (void)join(job, kServer);
  EXPECT_EQ(job.view_members().size(), 3U);
}

/// Nothing reports the steps of servers, so no view would count as one with a commit, and too many
/// views in a row would be in doubt.
TEST(CoordinatorServers, MayChangeTheirViewOftenInAJobWithStandbys) {
  CoordinatorOptions options = with_servers(2);
  options.quorum = true;
  CoordinatorHarness job(options);
  const MemberId server = join(job, kServer);
  const MemberId worker = join(job, "worker");
  for (std::size_t i = 0; i < 2 * kViewBasesMax; ++i) {
    job.start(server, 0);
    job.start(worker, 1);
    job.give(coordinator_event::PauseAsked{true});
    job.stopped(server, 0);
    job.stopped(worker, 1);
    job.give(coordinator_event::PauseAsked{false});
    ASSERT_EQ(job.coordinator.phase(), JobPhase::kRunning) << i << " changes";
  }
}

/// Servers have the state but compute nothing: without a worker the job makes no steps.
TEST(CoordinatorServers, DoNotLetTheLastWorkerLeave) {
  CoordinatorHarness job(with_servers(2));
  (void)join(job, kServer);
  const MemberId worker = join(job, "worker");
  const ViewId view = job.view().id;
  job.say(worker, LeaveRequest{"SIGTERM"});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning) << "no view after the other for nothing";
  EXPECT_EQ(job.view().id, view);
  EXPECT_TRUE(job.noted("leave_deferred"));
  const MemberId late = join(job, "worker");
  job.stopped(job.view_members()[0], 0);
  job.stopped(worker, 1);
  EXPECT_EQ(job.view_members(), (Members{MemberId{1}, late}));
  EXPECT_TRUE(job.noted("left"));
}

/// Work goes on while a view ends: a worker may be at the job's last records.
TEST(CoordinatorServers, AndWorkersThatHaveStoppedMayUseTheStoreUntilThereIsAnotherView) {
  CoordinatorHarness job(with_servers(2));
  const MemberId server = join(job, kServer);
  const MemberId worker = join(job, "worker");
  const ViewId view = job.view().id;
  job.give(coordinator_event::PauseAsked{true});
  job.stopped(worker, 1);
  job.clear();
  job.say(worker, StoreSet{view, "reports", {}});
  job.say(worker, StoreGet{view, "reports"});
  EXPECT_EQ(job.sent<StoreValue>(worker).size(), 1U);
  job.stopped(server, 0);
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kPaused);
  job.clear();
  job.say(worker, StoreSet{view, "reports", {}});
  job.say(worker, StoreGet{view, "reports"});
  EXPECT_EQ(job.sent<StoreValue>(worker).size(), 1U) << "paused, there is none yet";
}

/// The worker receives Stop before it learns that the job is over.
TEST(CoordinatorServers, ThatAreFinishedWhileAWorkerIsNotAreBelieved) {
  CoordinatorHarness job(with_servers(2));
  const MemberId server = join(job, kServer);
  const MemberId worker = join(job, "worker");
  job.give(coordinator_event::PauseAsked{true});
  job.stopped(worker, 1);
  job.finished(server, 120);
  EXPECT_FALSE(job.noted("evicted"));
  job.give(coordinator_event::PauseAsked{false});
  ASSERT_EQ(job.coordinator.phase(), JobPhase::kRunning);
  job.finished(server, 120);
  job.finished(worker, 120);
  EXPECT_EQ(job.outcome(), Outcome::kDone);
}

TEST(CoordinatorServers, ThatAreFinishedWhenTheJobIsToBeStoppedEndItAsDone) {
  CoordinatorHarness job(with_servers(2));
  const MemberId server = join(job, kServer);
  const MemberId worker = join(job, "worker");
  job.give(coordinator_event::StopAsked{"asked"});
  job.stopped(worker, 1);
  job.finished(server, 120);
  EXPECT_FALSE(job.outcome().has_value()) << "the worker has a view to say so, too";
  job.finished(server, 120);
  job.finished(worker, 120);
  EXPECT_EQ(job.outcome(), Outcome::kDone);
}

/// The worker cannot reach the end for some reason. The coordinator waits for it only once.
TEST(CoordinatorServers, ThatAreFinishedWaitForTheOthersOfAStoppedJobOnlyOnce) {
  CoordinatorHarness job(with_servers(2));
  const MemberId server = join(job, kServer);
  const MemberId worker = join(job, "worker");
  job.give(coordinator_event::StopAsked{"asked"});
  job.stopped(worker, 1);
  job.finished(server, 120);
  job.finished(server, 120);
  job.stopped(worker, 1);
  EXPECT_EQ(job.outcome(), Outcome::kStopped);
}

}  // namespace
}  // namespace mayfly::elastic
