// Members that do not count as workers: parameter servers.

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

CoordinatorOptions options(std::uint32_t initial, std::uint32_t min_workers = 1) {
  CoordinatorOptions made;
  made.initial_workers = initial;
  made.min_workers = min_workers;
  made.min_workers_timeout = seconds(5);
  made.counts_as_worker = [](const std::string& address) { return address != kServer; };
  return made;
}

TEST(CoordinatorServers, LostWithOneWorkerLeftLeaveAViewAtOnce) {
  CoordinatorHarness job(options(2));
  const MemberId server = join(job, kServer);
  const MemberId worker = join(job, "worker");
  ASSERT_EQ(job.view_members(), (Members{server, worker}));
  job.give(coordinator_event::ConnectionLost{server, "reset"});
  job.stopped(worker, 0);
  EXPECT_EQ(job.coordinator.phase(), "running");
  EXPECT_EQ(job.view_members(), Members{worker}) << "it says what is lost";
}

TEST(CoordinatorServers, AreNotWaitedForInThePlaceOfWorkers) {
  CoordinatorHarness job(options(4, 2));
  const MemberId first = join(job, kServer);
  const MemberId second = join(job, kServer);
  const MemberId stays = join(job, "worker");
  const MemberId goes = join(job, "worker");
  ASSERT_EQ(job.view_members().size(), 4U);
  job.give(coordinator_event::ConnectionLost{goes, "reset"});
  for (const MemberId member : {first, second, stays}) {
    job.stopped(member, 0);
  }
  EXPECT_EQ(job.coordinator.phase(), "waiting") << "three members, but one worker of two";
  const MemberId late = join(job, "worker");
  EXPECT_EQ(job.view_members(), (Members{first, second, stays, late}));
}

TEST(CoordinatorServers, WithoutAnyWorkerForTooLongAreDismissed) {
  CoordinatorHarness job(options(3));
  const MemberId first = join(job, kServer);
  const MemberId second = join(job, kServer);
  const MemberId worker = join(job, "worker");
  job.give(coordinator_event::ConnectionLost{worker, "reset"});
  job.stopped(first, 0);
  job.stopped(second, 0);
  EXPECT_EQ(job.coordinator.phase(), "waiting");
  job.pass(seconds(6), {first, second});
  EXPECT_EQ(job.outcome(), Outcome::kTooFewWorkers);
  EXPECT_EQ(job.sent<Dismiss>(first)[0].detail, "0 workers are ready, 1 are needed");
}

TEST(CoordinatorServers, AreWaitedForBeforeTheFirstView) {
  CoordinatorHarness job(options(3));
  (void)join(job, "worker");
  (void)join(job, "worker");
  EXPECT_FALSE(job.coordinator.view().has_value());
  (void)join(job, kServer);
  EXPECT_EQ(job.view_members().size(), 3U);
}

}  // namespace
}  // namespace mayfly::elastic
