// A coordinator that is lost and started again, with real connections on loopback.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/net/sockets.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/reconnect.hpp"
#include "tests/integration/elastic/test_job.hpp"

namespace mayfly::elastic {
namespace {

using ::testing::Contains;
using ::testing::Pair;
using Workers = std::vector<std::unique_ptr<ToyWorker>>;

/// Adds so many workers to the job, and returns them when they all run one view.
Workers running(TestJob& job, int count) {
  Workers workers;
  for (int i = 0; i < count; ++i) {
    workers.push_back(job.add_worker());
  }
  const View view = job.observer().wait_for_view(ids_of(workers));
  for (const auto& worker : workers) {
    worker->wait_for_view(view.id);
  }
  return workers;
}

void wait_for_phase(TestJob& job, JobPhase phase, std::size_t members) {
  const Instant deadline = monotonic_now() + kHangBound;
  JobStatus status;
  do {
    status = job.server().status();
    std::this_thread::yield();
  } while ((status.phase != phase || status.members.size() != members) &&
           monotonic_now() < deadline);
  EXPECT_EQ(status.phase, phase);
  EXPECT_EQ(status.members.size(), members);
}

TEST(Failover, ACoordinatorThatComesBackChangesNothing) {
  TestJob job(3);
  const Workers workers = running(job, 3);
  const std::size_t views = job.observer().seen().views.size();
  job.kill_coordinator();
  job.restart_coordinator();
  wait_for_phase(job, JobPhase::kRunning, 3);
  EXPECT_EQ(job.observer().seen().views.size(), views);
  for (const auto& worker : workers) {
    EXPECT_TRUE(worker->aborted().empty());
  }
}

/// Answers one client at this port of the loopback interface as a coordinator that is not in
/// charge.
void redirect_one_client(std::uint16_t port) {
  const UniqueFd listener = listen_tcp({"127.0.0.1", port}).value();
  const Instant deadline = monotonic_now() + kHangBound;
  UniqueFd client;
  while (!client.valid() && monotonic_now() < deadline) {
    client = accept_one(listener.get());
    std::this_thread::yield();
  }
  EXPECT_TRUE(send_message(client.get(), Challenge{make_nonce()}, deadline).ok());
  EXPECT_TRUE(receive_message(client.get(), deadline).ok());
  const Refused elsewhere{"not in charge", Refusal::kElsewhere};
  EXPECT_TRUE(send_message(client.get(), elsewhere, deadline).ok());
}

// Otherwise it would leave the coordinator that it has found meanwhile.
TEST(Failover, AWorkerIsSentElsewhereWhileItLoadsAndNotAfterwards) {
  TestJob job(1);
  Result<std::unique_ptr<MemberClient>> client = job.connect(job.token());
  ASSERT_TRUE(client.ok());
  const MemberId self = client.value()->id();
  job.kill_coordinator();
  redirect_one_client(parse_endpoint(job.endpoint()).value().port);
  job.restart_coordinator();
  job.observer().wait_for_note("returned", self);
  const auto worker = std::make_unique<ToyWorker>(std::move(client).value());  // it has loaded
  job.observer().wait_for_view({self});
  for (const auto& timed : job.observer().seen().notes) {
    EXPECT_NE(timed.note.kind, "lost") << timed.note.detail;
  }
}

TEST(Failover, WhoIsLostMeanwhileIsMissedAfterwards) {
  TestJob job(3);
  Workers workers = running(job, 3);
  job.kill_coordinator();
  workers[1]->vanish();
  workers.erase(workers.begin() + 1);
  job.restart_coordinator();
  job.observer().wait_for_view(ids_of(workers));
}

TEST(Failover, LeavesAndJoinsGoOnAfterwards) {
  TestJob job(2);
  Workers workers = running(job, 2);
  job.kill_coordinator();
  workers[1]->client().post(member_event::LeaveAsked{"spot notice"});
  job.restart_coordinator();
  EXPECT_EQ(workers[1]->wait_for_leave().reason, DismissReason::kDrained);
  workers.erase(workers.begin() + 1);
  workers.push_back(job.add_worker());
  job.observer().wait_for_view(ids_of(workers));
  std::set<MemberId> ids;
  for (const View& view : job.observer().seen().views) {
    for (const ViewMember& member : view.members) {
      ids.insert(member.id);
    }
  }
  EXPECT_EQ(ids.size(), 3u) << "no id is used twice";
}

TEST(Failover, ReportsOfTheTimeWithoutACoordinatorArriveLater) {
  TestJob job(1);
  const Workers workers = running(job, 1);
  const auto report = [&](int number) {
    workers[0]->client().send_report(Bytes(1, static_cast<std::byte>(number)));
  };
  const auto seen_numbers = [](const RecordingObserver::Seen& seen) {
    std::set<int> numbers;
    for (const auto& [member, payload] : seen.reports) {
      numbers.insert(static_cast<int>(payload[0]));
    }
    return numbers;
  };
  report(1);
  job.observer().wait_until([&](const auto& seen) { return seen_numbers(seen).count(1) == 1; },
                            "the first report");
  for (int number = 2; number < 50; ++number) {
    if (number == 10) {
      job.kill_coordinator();
    }
    if (number == 40) {
      job.restart_coordinator();
    }
    report(number);
  }
  job.observer().wait_until([&](const auto& seen) { return seen_numbers(seen).size() == 49; },
                            "all reports");
}

TEST(Failover, WhatAMemberCouldNotReportComesFromTheNextOneOfItsProcess) {
  TestJob job(1);
  ReportQueue reports;
  std::unique_ptr<ToyWorker> worker = job.add_worker(true, &reports);
  worker->wait_for_view(job.observer().wait_for_view({worker->id()}).id);
  job.kill_coordinator();
  worker->client().send_report({std::byte{7}});
  worker.reset();
  job.restart_coordinator();
  worker = job.add_worker(true, &reports);
  worker->client().send_report({std::byte{8}});
  job.observer().wait_until([](const auto& seen) { return seen.reports.size() >= 2; },
                            "both reports");
  EXPECT_THAT(job.observer().seen().reports, Contains(Pair(worker->id(), Bytes{std::byte{7}})));
}

TEST(Failover, AWaitForAKeyOutlastsTheCoordinator) {
  TestJob job(2);
  const Workers workers = running(job, 2);
  const ViewId view = job.observer().seen().views.back().id;
  const auto bytes = [](const char* text) { return std::as_bytes(std::span(text, 3)); };
  ASSERT_TRUE(workers[0]->client().store_set(view, "early", bytes("one")).ok());
  Result<Bytes> late = Error{Errc::kAborted, ""};
  std::thread waiter(
      [&] { late = workers[0]->client().store_get(view, "late", monotonic_now() + kHangBound); });
  job.kill_coordinator();
  ASSERT_TRUE(workers[1]->client().store_set(view, "late", bytes("two")).ok());
  job.restart_coordinator();
  waiter.join();
  EXPECT_TRUE(late.ok());
  // The members have sent the values of the old coordinator's store to the new one.
  EXPECT_TRUE(workers[1]->client().store_get(view, "early", monotonic_now() + kHangBound).ok());
}

TEST(Failover, AMemberThatNeedsACoordinatorGivesUpAfterItsTimeout) {
  TestJob job(1);
  job.set_coordinator_timeout(milliseconds(200));
  const auto workers = running(job, 1);
  const auto loading = job.add_worker(false);
  job.kill_coordinator();
  const member_effect::Leave leave = loading->wait_for_leave();
  EXPECT_EQ(leave.reason, DismissReason::kJobFailed);
  EXPECT_NE(leave.detail.find("gone"), std::string::npos);
  EXPECT_TRUE(workers[0]->aborted().empty()) << "who has work goes on";
  workers[0]->finish();
  EXPECT_EQ(workers[0]->wait_for_leave().reason, DismissReason::kJobDone);
}

TEST(Failover, TheCoordinatorMayComeAndGoManyTimes) {
  TestJob job(2);
  const Workers workers = running(job, 2);
  for (int round = 0; round < 5; ++round) {
    job.kill_coordinator();
    job.restart_coordinator();
    wait_for_phase(job, JobPhase::kRunning, 2);
  }
  EXPECT_EQ(job.observer().seen().views.size(), 1u);
}

}  // namespace
}  // namespace mayfly::elastic
