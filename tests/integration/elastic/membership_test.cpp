// A real coordinator and real clients on loopback: joins, leaves and losses cause new views.

#include <gtest/gtest.h>

#include "tests/integration/elastic/test_job.hpp"

namespace mayfly::elastic {
namespace {

using Workers = std::vector<std::unique_ptr<ToyWorker>>;

Workers add_workers(TestJob& job, int count) {
  Workers workers;
  for (int i = 0; i < count; ++i) {
    workers.push_back(job.add_worker());
  }
  return workers;
}

TEST(Membership, TheFirstViewHoldsAllWhoWereWaitedFor) {
  TestJob job(4);
  const Workers workers = add_workers(job, 4);
  const View view = job.observer().wait_for_view(ids_of(workers));
  EXPECT_EQ(job.observer().seen().views.size(), 1u);
  for (const auto& worker : workers) {
    worker->wait_for_view(view.id);
  }
}

TEST(Membership, NoViewBeforeAWorkerIsReady) {
  TestJob job(2);
  const auto first = job.add_worker();
  const auto second = job.add_worker(false);
  EXPECT_EQ(job.server().status().phase, JobPhase::kWaiting);
  EXPECT_TRUE(job.observer().seen().views.empty());
  second->client().post(member_event::Loaded{Step{0}});
  job.observer().wait_for_view({first->id(), second->id()});
}

TEST(Membership, AJoinerIsAdmittedAtABoundaryWithoutAnAbort) {
  TestJob job(2);
  Workers workers = add_workers(job, 2);
  job.observer().wait_for_view(ids_of(workers));
  workers.push_back(job.add_worker());
  const View view = job.observer().wait_for_view(ids_of(workers));
  for (const auto& worker : workers) {
    worker->wait_for_view(view.id);
    EXPECT_TRUE(worker->aborted().empty());
  }
}

TEST(Membership, ALostConnectionAbortsTheGroupOfTheOthersAndMakesANewView) {
  TestJob job(3);
  Workers workers = add_workers(job, 3);
  const View old_view = job.observer().wait_for_view(ids_of(workers));
  for (const auto& worker : workers) {
    worker->wait_for_view(old_view.id);
  }
  workers[1]->vanish();
  workers.erase(workers.begin() + 1);
  const View view = job.observer().wait_for_view(ids_of(workers));
  for (const auto& worker : workers) {
    worker->wait_for_view(view.id);
    EXPECT_EQ(worker->aborted(), std::vector<ViewId>{old_view.id});
  }
  job.observer().wait_until([](const auto& seen) { return !seen.recoveries.empty(); }, "recovery");
}

TEST(Membership, ADrainedWorkerLeavesWithoutAnAbort) {
  TestJob job(2);
  Workers workers = add_workers(job, 2);
  job.observer().wait_for_view(ids_of(workers));
  job.server().drain(workers[0]->id(), "test");
  EXPECT_EQ(workers[0]->wait_for_leave().reason, DismissReason::kDrained);
  const View view = job.observer().wait_for_view({workers[1]->id()});
  workers[1]->wait_for_view(view.id);
  EXPECT_TRUE(workers[1]->aborted().empty());
}

TEST(Membership, AWorkerMayAskToLeave) {
  TestJob job(2);
  Workers workers = add_workers(job, 2);
  job.observer().wait_for_view(ids_of(workers));
  workers[1]->client().post(member_event::LeaveAsked{"spot notice"});
  EXPECT_EQ(workers[1]->wait_for_leave().reason, DismissReason::kDrained);
  job.observer().wait_for_view({workers[0]->id()});
}

/// The server notifies its observers at once that a member will leave, so that a replacement can be
/// requested during the step.
TEST(Membership, ThatSomebodyIsToLeaveIsNewsBeforeTheBoundary) {
  CoordinatorOptions patient;  // a stall, or a member that does not stop, would be news, too
  patient.stop_timeout = patient.silence_max = patient.starved_max = seconds(3600);
  patient.stalls.report_floor = patient.stalls.unknown_report_floor = seconds(3600);
  for (const bool by_order : {false, true}) {
    TestJob job(2, patient);
    Workers workers = add_workers(job, 2);
    const View view = job.observer().wait_for_view(ids_of(workers));
    for (const auto& worker : workers) {
      worker->wait_for_view(view.id);
      worker->never_stop();
    }
    job.observer().at_news([&job](RecordingObserver::Seen& seen) {
      for (const MemberStatus& member : job.server().status().members) {
        if (member.phase == MemberPhase::kLeaving) {
          seen.leaving.insert(member.id);
        }
      }
    });
    if (by_order) {
      job.server().drain(workers[1]->id(), "test");
    } else {
      workers[1]->client().post(member_event::LeaveAsked{"spot notice"});
    }
    job.observer().wait_until([](const auto& seen) { return !seen.leaving.empty(); }, "the news");
    EXPECT_EQ(job.observer().seen().leaving, std::set<MemberId>{workers[1]->id()});
    job.observer().at_news({});
  }
}

TEST(Membership, TheJobEndsWhenAllHaveFinished) {
  TestJob job(2);
  Workers workers = add_workers(job, 2);
  const View view = job.observer().wait_for_view(ids_of(workers));
  int checkpoints = 0;
  for (const auto& worker : workers) {
    worker->wait_for_view(view.id);
    worker->finish();
  }
  for (const auto& worker : workers) {
    const member_effect::Leave leave = worker->wait_for_leave();
    EXPECT_EQ(leave.reason, DismissReason::kJobDone);
    checkpoints += leave.write_checkpoint ? 1 : 0;
  }
  EXPECT_EQ(checkpoints, 1);
  job.observer().wait_until([](const auto& seen) { return !seen.outcomes.empty(); }, "the end");
  EXPECT_EQ(job.observer().seen().outcomes, std::vector<Outcome>{Outcome::kDone});
}

TEST(Membership, ReportsReachTheObserverInOrder) {
  TestJob job(1);
  const auto worker = job.add_worker();
  for (int i = 0; i < 100; ++i) {
    worker->client().send_report(Bytes(static_cast<std::size_t>(i) * 1000, std::byte{5}));
  }
  job.observer().wait_until([](const auto& seen) { return seen.reports.size() == 100; }, "reports");
  const auto seen = job.observer().seen();
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(seen.reports[i].first, worker->id());
    EXPECT_EQ(seen.reports[i].second.size(), i * 1000);
  }
}

TEST(Membership, StatusShowsMembersAndProgress) {
  TestJob job(1);
  const auto worker = job.add_worker();
  const View view = job.observer().wait_for_view({worker->id()});
  worker->wait_for_view(view.id);
  worker->client().send_progress(Progress{view.id, Step{17}, 2.5f});
  worker->client().send_report({});
  job.observer().wait_until([](const auto& seen) { return !seen.reports.empty(); }, "report");
  const Instant deadline = monotonic_now() + kHangBound;
  while (value(job.server().status().committed) != 17 && monotonic_now() < deadline) {
  }
  const JobStatus status = job.server().status();
  EXPECT_EQ(status.view, view.id);
  EXPECT_EQ(status.phase, JobPhase::kRunning);
  ASSERT_EQ(status.members.size(), 1u);
  EXPECT_EQ(status.members[0].committed, Step{17});
  EXPECT_NE(status.members[0].pid, 0u);
}

TEST(Membership, TheServersLastWordsArriveThoughItIsDestroyedAtOnce) {
  auto job = std::make_unique<TestJob>(2);
  const Workers workers = add_workers(*job, 2);
  job->observer().wait_for_view(ids_of(workers));
  job->server().fail("the loss is not finite");
  job->observer().wait_until([](const auto& seen) { return !seen.outcomes.empty(); }, "the end");
  job.reset();
  for (const auto& worker : workers) {
    EXPECT_EQ(worker->wait_for_leave().detail, "the loss is not finite");
  }
}

TEST(Membership, ManyJoinsAndLossesAlwaysEndInAViewOfTheLiving) {
  TestJob job(1);
  Workers workers = add_workers(job, 1);
  job.observer().wait_for_view(ids_of(workers));
  for (int round = 0; round < 10; ++round) {
    workers.push_back(job.add_worker());
    workers.push_back(job.add_worker());
    job.observer().wait_for_view(ids_of(workers));
    workers.front()->vanish();
    workers.erase(workers.begin());
    job.observer().wait_for_view(ids_of(workers));
  }
  const View view = job.observer().wait_for_view(ids_of(workers));
  for (const auto& worker : workers) {
    worker->wait_for_view(view.id);
  }
}

}  // namespace
}  // namespace mayfly::elastic
