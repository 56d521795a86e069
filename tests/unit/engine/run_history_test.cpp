#include "engine/run/run_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

#include "engine/run/record_json.hpp"
#include "engine/run/run_directory.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RunHistoryTest : public ::testing::Test {
 protected:
  RunHistoryTest() {
    config_.run_dir = folder_ / "run";
    config_.tensorboard = false;
  }

  std::unique_ptr<RunDirectory> start() { return RunDirectory::create(config_).value(); }
  void append(const std::string& file, const std::string& text) const {
    std::ofstream(config_.run_dir + "/" + file, std::ios::app) << text;
  }
  [[nodiscard]] RunHistory history() const {
    Result<RunHistory> read = read_run_history(config_.run_dir);
    EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().detail);
    return std::move(read).value();
  }
  static StepRecord metric(std::uint64_t step, const std::string& digest = "") {
    StepRecord m;
    m.step = step;
    m.samples = 100;
    m.images_per_second = step == 1 ? 0 : 50;
    m.data_wait_ms = 500;
    m.sample_hash = "00";
    m.digest = digest;
    return m;
  }
  static json::object view(std::uint64_t number, std::uint64_t committed,
                           std::vector<std::uint64_t> members,
                           std::vector<std::string> hosts = {}) {
    return object_of(ViewEvent{number, committed, std::move(members), std::move(hosts)});
  }

  test_support::TemporaryFolder folder_;
  JobConfig config_;
};

TEST_F(RunHistoryTest, AnEmptyRunHasNone) {
  start();
  const RunHistory h = history();
  EXPECT_EQ(h.last_step, 0u);
  EXPECT_EQ(h.views, 0u);
  EXPECT_FALSE(h.evaluation.has_value());
}

TEST_F(RunHistoryTest, WhatAPartIsResumedFromIsOnRecord) {
  start();
  EXPECT_EQ(history().start.digest, "");
  config_.resume = config_.run_dir;
  ASSERT_TRUE(RunDirectory::create(config_, {40, "abcd"}).ok());
  EXPECT_EQ(history().start.step, 40u);
  EXPECT_EQ(history().start.digest, "abcd");
  start();  // a part that is resumed from no checkpoint
  EXPECT_EQ(history().start.step, 0u);
  EXPECT_EQ(history().start.digest, "");
}

/// A user's program may give its notes the name of a kind of Mayfly's events.
TEST_F(RunHistoryTest, NotesOfProgramsAreNoEventsOfOurs) {
  const std::unique_ptr<RunDirectory> directory = start();
  for (const char* kind : {"evaluation", "checkpoint", "state", "view", "started"}) {
    directory->event(NoteRecord::kOfProgram,
                     object_of(NoteRecord{NoteRecord::kOfProgram, "a text", 1, kind}));
  }
  EXPECT_FALSE(history().evaluation.has_value());
}

TEST_F(RunHistoryTest, StepsWithoutAnUpdateAreCounted) {
  const auto run = start();
  for (const std::uint64_t step : {1, 2, 3, 4}) {
    StepRecord m = metric(step);
    m.loss = std::numeric_limits<double>::quiet_NaN();
    m.loss_scale = 65536;
    m.skipped = step % 2 == 0;
    m.attempts = step == 3 ? 2 : 1;
    run->metric(m);
  }
  EXPECT_EQ(history().skipped_steps, 2u);
  EXPECT_EQ(history().retried_steps, 1u);
  EXPECT_EQ(history().samples, 400u);
}

TEST_F(RunHistoryTest, StepsAreCountedAsTheyWereRecorded) {
  const auto run = start();
  for (const std::uint64_t step : {1, 2, 3, 5, 6}) {
    run->metric(metric(step, step == 5 ? "five" : ""));
  }
  run->metric(metric(4, "four"));  // the member that reports step 4 was slower
  run->metric(metric(9));
  const RunHistory h = history();
  EXPECT_EQ(h.first_step, 1u);
  EXPECT_EQ(h.last_step, 9u);
  EXPECT_THAT(h.missing.first(9), ElementsAre(7, 8));
  EXPECT_EQ(h.samples, 700u);
  EXPECT_DOUBLE_EQ(h.train_seconds, 12);
  EXPECT_DOUBLE_EQ(h.data_wait_seconds, 3);
  EXPECT_EQ(h.last_digest, "five");
}

TEST_F(RunHistoryTest, StepsThatWereUndoneCountOnce) {
  const auto run = start();
  for (const std::uint64_t step : {1, 2, 3, 4, 5, 6}) {
    run->metric(metric(step));
  }
  run->event("state", {{"step", 6}, {"digest", "undone"}});
  run->event("fell_back", object_of(FallBackRecord{24, 3, "", 3, 300}));
  for (const std::uint64_t step : {4, 5}) {
    run->metric(metric(step));
  }
  const RunHistory h = history();
  EXPECT_EQ(h.last_step, 5u);
  EXPECT_EQ(h.current_step, 5u);
  EXPECT_NE(h.last_digest, "undone");
  EXPECT_EQ(h.samples, 500u);
  EXPECT_EQ(h.undone_samples, 300u);
  EXPECT_EQ(h.fell_back_at, 24u);
  EXPECT_TRUE(h.missing.empty());
}

TEST_F(RunHistoryTest, EveryFallBackCounts) {
  const auto run = start();
  const auto steps = [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t step = first; step <= last; ++step) {
      run->metric(metric(step));
    }
  };
  steps(1, 6);
  run->event("fell_back", object_of(FallBackRecord{24, 3, "", 3, 300}));
  steps(4, 10);
  run->event("fell_back", object_of(FallBackRecord{52, 8, "", 2, 200}));
  EXPECT_EQ(history().last_step, 8u) << "and no step is on record since then";
  EXPECT_EQ(history().current_step, 8u);
  EXPECT_EQ(history().samples, 800u);
  EXPECT_EQ(history().undone_samples, 500u);
  run->event("fell_back", object_of(FallBackRecord{54, 7, "", 1, 100}));
  steps(8, 12);
  run->evaluation({12, 0.5, 1.25});
  run->event("checkpoint", {{"step", 12}, {"detail", "runs/a/step-12"}});
  EXPECT_TRUE(history().evaluation.has_value());
  EXPECT_THAT(history().checkpoints, ElementsAre(12));
  EXPECT_EQ(history().last_step, 12u);
  EXPECT_EQ(history().samples, 1200u);
  EXPECT_EQ(history().undone_samples, 600u);
  EXPECT_TRUE(history().missing.empty());
}

TEST_F(RunHistoryTest, LostTimeAndMoneyAreOnRecord) {
  const auto run = start();
  RunHistory h;
  h.on_event("waiting", 1);  // for the first members: no loss of time
  h.views = 1;
  h.on_event("waiting", 10);
  h.on_event("no_quorum", 11);
  h.goes_on(14);
  h.on_event("paused", 20);
  h.on_event("resumed", 22);
  EXPECT_DOUBLE_EQ(h.waiting_seconds, 6);
  for (const auto& [detected, ms] : {std::pair(30.0, 4000.0), {32.0, 1000.0}, {33.0, 2000.0}}) {
    RecoveryRecord recovery;
    recovery.detected = detected;
    recovery.step_ms = ms;
    h.recoveries.push_back(recovery);
  }
  EXPECT_DOUBLE_EQ(h.recovery_seconds(), 5);

  run->evaluation({1, 0.5, 1, 250});
  run->event("lost", {{"member", 1}, {"detail", ""}, {"spent", 1.5}, {"per_hour", 2}});
  EXPECT_DOUBLE_EQ(history().evaluation_seconds, 0.25);
  ASSERT_TRUE(history().spending.has_value());
  EXPECT_DOUBLE_EQ(history().spending->spent, 1.5);
  EXPECT_DOUBLE_EQ(history().spending->per_hour, 2);
  run->event("started", {{"metrics_bytes", 0}});  // resumed: no worker ran in between
  EXPECT_DOUBLE_EQ(history().spending->spent, 1.5);
  EXPECT_DOUBLE_EQ(history().spending->per_hour, 0);
}

TEST_F(RunHistoryTest, AJobThatLostItsNewestStateIsAtTheStepOfItsLastView) {
  const auto run = start();
  run->event("view", view(1, 0, {1}));
  for (const std::uint64_t step : {1, 2, 3, 4, 5, 6}) {
    run->metric(metric(step, "digest"));
  }
  run->event("checkpoint", {{"step", 2}, {"detail", "runs/a/step-2"}});
  run->event("checkpoint", {{"step", 5}, {"detail", "lost with its server"}});
  run->evaluation({4, 0.5, 1.25});
  run->event("restarted", object_of(RestartEvent{2, 4, 400, ""}));
  run->event("view", view(2, 2, {2}));
  RunHistory h = history();
  EXPECT_EQ(h.last_step, 6u);
  EXPECT_EQ(h.current_step, 2u);
  EXPECT_EQ(h.last_digest, "");
  EXPECT_EQ(h.undone_samples, 400u);
  EXPECT_THAT(h.checkpoints, ElementsAre(2));
  EXPECT_FALSE(h.evaluation.has_value());
  EXPECT_TRUE(h.is_undone(3, 1)) << "of the view before, and late";
  EXPECT_FALSE(h.is_undone(3, 2));
  EXPECT_FALSE(h.is_undone(2, 1));
  h.reached(6, "again");
  run->metric(metric(7));
  run->event("view", view(3, 7, {2, 3}));
  EXPECT_EQ(history().current_step, 7u);
  EXPECT_EQ(h.last_digest, "again");
}

TEST_F(RunHistoryTest, AJobThatHasPassedWhereItWasBeforeIsAtItsLastStep) {
  const auto run = start();
  run->event("view", view(1, 0, {1}));
  for (const std::uint64_t step : {1, 2, 3, 4, 5, 6}) {
    StepRecord m = metric(step, "digest of " + std::to_string(step));
    m.view = step <= 4 ? 1 : 2;
    if (step == 5) {
      run->event("restarted", object_of(RestartEvent{2, 2, 200, ""}));
      run->event("view", view(2, 2, {2}));
    }
    run->metric(m);
  }
  const RunHistory h = history();
  EXPECT_EQ(h.current_step, 6u);
  EXPECT_EQ(h.last_digest, "digest of 6");
  EXPECT_EQ(h.undone_samples, 200u);
}

TEST_F(RunHistoryTest, WhatIsUndoneIsTheSameBeforeAndAfterTheCoordinatorIsStartedAgain) {
  RunHistory h;
  h.current_step = 9;
  EXPECT_TRUE(h.view_published({4, 0, {1}, {}}));
  EXPECT_EQ(h.restart(5, 100), 4U);
  EXPECT_TRUE(h.is_undone(6, 3));
  EXPECT_FALSE(h.is_undone(6, 4));
  EXPECT_FALSE(h.is_undone(5, 3));
}

TEST_F(RunHistoryTest, RecordsThatWereLostWithWhoHadThemAreMissing) {
  const auto run = start();
  for (const std::uint64_t step : {1, 2}) {
    run->metric(metric(step, "digest"));
  }
  run->event("view", view(2, 5, {3}));
  EXPECT_EQ(history().current_step, 5u);
  EXPECT_THAT(history().missing.first(9), ElementsAre(3, 4, 5));
  EXPECT_EQ(history().digest_step, 2u);
  run->event("state", {{"step", 5}, {"digest", "of five"}});
  EXPECT_EQ(history().last_digest, "of five");
  EXPECT_EQ(history().digest_step, 5u);
}

TEST_F(RunHistoryTest, WhoTookPartIsReadBack) {
  const auto run = start();
  run->event("view", view(1, 0, {1, 2}, {"a", "b"}));
  run->event("view", view(2, 1, {1, 3}, {"a", "b"}));
  for (const std::uint64_t step : {1, 2, 3}) {
    run->metric(metric(step));
  }
  const std::vector<WorkerStay> stays = history().stays();
  ASSERT_EQ(stays.size(), 3u);
  EXPECT_EQ(stays[0].host, "a");
  EXPECT_EQ(stays[0].last_step, 3u);
  EXPECT_EQ(stays[1].member, 2u);
  EXPECT_EQ(stays[1].last_step, 1u);
  EXPECT_EQ(stays[2].first_step, 1u);
  EXPECT_EQ(stays[2].last_step, 3u);
}

TEST_F(RunHistoryTest, EventsAreReadBack) {
  const auto run = start();
  RecoveryRecord recovery;
  recovery.cause = elastic::ChangeCause::kLost;
  recovery.members = {3, 4};
  recovery.step = 17;
  recovery.view = 2;
  recovery.redone_microbatches = 5;
  recovery.step_ms = 41.5;
  run->event("view", view(1, 0, {1, 2}));
  run->event("view", {{"detail", "view 1 resumes after step 0"}});  // the coordinator's note
  run->event("view", view(2, 0, {1, 2, 3}));
  run->event("view", view(3, 0, {1, 2, 3}));  // only the shares changed
  run->event(RecoveryEvent::kKind, object_of(RecoveryEvent{recovery}));
  run->evaluation({20, 0.5, 1.25});
  run->event("checkpoint_received", {{"step", 20}, {"path", "runs/a/step-20"}});
  run->event("checkpoint", {{"step", 20}, {"detail", "/tmp/of-the-worker/step-20"}});
  const RunHistory h = history();
  EXPECT_EQ(h.views, 2u);
  EXPECT_EQ(h.view, 3u);
  ASSERT_EQ(h.recoveries.size(), 1u);
  EXPECT_EQ(h.recoveries[0].cause, elastic::ChangeCause::kLost);
  EXPECT_THAT(h.recoveries[0].members, ElementsAre(3, 4));
  EXPECT_EQ(h.recoveries[0].redone_microbatches, 5u);
  EXPECT_EQ(h.recoveries[0].step_ms, 41.5);
  ASSERT_TRUE(h.evaluation.has_value());
  EXPECT_EQ(h.evaluation->step, 20u);
  EXPECT_EQ(h.evaluation->top1, 0.5);
  EXPECT_EQ(h.last_checkpoint, "runs/a/step-20");
  EXPECT_THAT(h.checkpoints, ElementsAre(20));
}

TEST_F(RunHistoryTest, AViewThatIsToldAgainCountsOnce) {
  RunHistory h;
  EXPECT_TRUE(h.view_published({1, 0, {1, 2}, {}}));
  EXPECT_TRUE(h.view_published({2, 0, {1}, {}}));
  EXPECT_FALSE(h.view_published({2, 0, {1}, {}}));
  EXPECT_FALSE(h.view_published({1, 0, {1, 2}, {}}));
  EXPECT_EQ(h.views, 2u);
  EXPECT_THAT(h.view_members, ElementsAre(1));
}

TEST_F(RunHistoryTest, APartThatEndedBeforeTheJobWasStartedAgainDoesNotCount) {
  {
    const auto run = start();
    run->event("view", view(1, 0, {1}));
    run->metric(metric(1));
    run->metric(metric(2));
  }
  config_.resume = config_.run_dir;
  const auto run = start();
  run->metric(metric(2));
  const RunHistory h = history();
  EXPECT_EQ(h.views, 0u);
  EXPECT_EQ(h.first_step, 2u);
  EXPECT_EQ(h.samples, 100u);
}

/// events.jsonl, with the size of metrics.jsonl, may reach the disk before the end of that file.
TEST_F(RunHistoryTest, AJobGoesOnIfAPowerFailureHasCutOffRecordsOfThePartBefore) {
  start()->metric(metric(1));
  const std::string metrics = config_.run_dir + "/metrics.jsonl";
  const std::uintmax_t kept = std::filesystem::file_size(metrics);
  RunDirectory::reopen(config_).value()->metric(metric(2, "0123456789abcdef"));
  config_.resume = config_.run_dir;
  (void)start();
  std::filesystem::resize_file(metrics, kept + 5);
  const auto run = RunDirectory::reopen(config_).value();
  for (const std::uint64_t step : {2, 3, 4}) {
    run->metric(metric(step));
  }
  const Result<RunHistory> read = read_run_history(config_.run_dir);
  ASSERT_TRUE(read.ok()) << read.error().detail;
  EXPECT_EQ(read.value().last_step, 4u);
}

TEST_F(RunHistoryTest, ATornLastLineIsIgnored) {
  const auto run = start();
  run->metric(metric(1));
  append("metrics.jsonl", "{\"step\": 2, \"sam");
  EXPECT_EQ(history().last_step, 1u);
}

TEST_F(RunHistoryTest, AnyOtherLineThatIsNotOursIsAnErrorThatNamesIt) {
  const auto run = start();
  run->metric(metric(1));
  append("metrics.jsonl", "{\"step\": 2}\n");
  const Result<RunHistory> read = read_run_history(config_.run_dir);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Errc::kCorrupt);
  EXPECT_THAT(read.error().detail, HasSubstr("metrics.jsonl line 2"));
  EXPECT_THAT(read.error().detail, Not(HasSubstr("boost"))) << "no place in a library's source";
}

}  // namespace
}  // namespace mayfly::engine
