// What a job leaves open of its fingerprint, and its first worker settles.

#include <gtest/gtest.h>

#include "elastic/core/coordinator.hpp"
#include "tests/unit/elastic/coordinator_harness.hpp"

namespace mayfly::elastic {
namespace {

CoordinatorOptions with_open_engines() {
  CoordinatorOptions open;
  open.initial_workers = 4;
  open.fingerprint = {{"seed", "1"}, {"engines", ""}};
  return open;
}

Hello with_engines(const std::string& engines) {
  Hello hello;
  hello.fingerprint = {{"seed", "1"}, {"engines", engines}};
  return hello;
}

TEST(CoordinatorFingerprint, TheFirstWorkerSaysWhatIsOpenInTheFingerprint) {
  CoordinatorHarness job(with_open_engines());
  job.give(coordinator_event::WorkerConnected{1, with_engines("")});  // has none, binds nobody
  job.give(coordinator_event::WorkerConnected{2, with_engines("all")});
  job.give(coordinator_event::WorkerConnected{3, with_engines("all but one")});
  job.give(coordinator_event::WorkerConnected{4, with_engines("")});
  const auto refused = job.all<coordinator_effect::Refuse>();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].connection, 3U);
  EXPECT_EQ(refused[0].reason, "engines: the job has all, this worker has all but one");
  EXPECT_EQ(job.all<coordinator_effect::Accept>().size(), 3U);
}

TEST(CoordinatorFingerprint, WhatTheFirstWorkerSaidBindsThoseAfterTheCoordinatorsDeath) {
  CoordinatorHarness job(with_open_engines());
  job.give(coordinator_event::WorkerConnected{1, with_engines("all")});
  LogContents contents;
  for (const coordinator_effect::Append& logged : job.all<coordinator_effect::Append>()) {
    if (const auto* started = std::get_if<log_record::JobStarted>(&logged.record)) {
      contents.job = started->job;
      contents.fingerprint = started->fingerprint;
      EXPECT_TRUE(started->fingerprint[1].second.empty() || logged.durable);
    }
  }
  EXPECT_EQ(contents.fingerprint[1].second, "all");
}

TEST(CoordinatorFingerprint, OnlyWhatTheJobLeavesOpenMayBeLeftOpenByAWorker) {
  CoordinatorHarness job(with_open_engines());
  Hello hello = with_engines("all");
  hello.fingerprint[0].second.clear();
  job.give(coordinator_event::WorkerConnected{1, hello});
  const auto refused = job.all<coordinator_effect::Refuse>();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].reason, "seed: the job has 1, this worker has ");
}

// The log refuses a record that says nothing new.
TEST(CoordinatorFingerprint, WhatIsLoggedAlreadyIsNotLoggedAgain) {
  CoordinatorHarness job(with_open_engines());
  job.give(coordinator_event::WorkerConnected{1, with_engines("all")});
  job.give(coordinator_event::ConnectionLost{MemberId{1}, "gone before the first view"});
  job.give(coordinator_event::WorkerConnected{2, with_engines("all")});
  EXPECT_EQ(job.all<coordinator_effect::Accept>().size(), 2U);
  std::vector<std::vector<std::pair<std::string, std::string>>> logged;
  for (const coordinator_effect::Append& each : job.all<coordinator_effect::Append>()) {
    if (const auto* started = std::get_if<log_record::JobStarted>(&each.record)) {
      EXPECT_TRUE(logged.empty() || logged.back() != started->fingerprint);
      logged.push_back(started->fingerprint);
    }
  }
  ASSERT_FALSE(logged.empty());
  EXPECT_EQ(logged.back()[1].second, "all");
}

}  // namespace
}  // namespace mayfly::elastic
