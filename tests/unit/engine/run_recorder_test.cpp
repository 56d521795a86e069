#include "engine/run/run_recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/network/prepare_job.hpp"
#include "engine/server_roles/ps_servers.hpp"
#include "tests/unit/engine/nobody_listens.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

elastic::View view_of_one(std::uint64_t id, std::uint64_t member) {
  elastic::View view;
  view.id = ViewId{id};
  view.committed = Step{1};  // workers with parameter servers report no other step
  view.members.push_back({MemberId{member}, kPsWorkerAddress, {}, 0, 0, {}});
  return view;
}

JobConfig small_job(const test_support::TemporaryFolder& folder) {
  JobConfig config;
  config.data = "procedural:64";
  config.global_batch = 16;
  config.microbatch = 4;
  config.steps = 40;
  config.sync = "bsp";
  config.tensorboard = false;
  config.run_dir = folder / "run";
  return config;
}

TEST(RunRecorder, ALineForTheListenerAloneIsNotOnRecord) {
  const test_support::TemporaryFolder folder;
  const JobConfig config = small_job(folder);
  const std::unique_ptr<Job> job = prepare_job(config).value();
  const std::unique_ptr<RunDirectory> directory = RunDirectory::create(config).value();
  test_support::KeepsLines listener;
  RunRecorder recorder(*job, *directory, listener, {}, {});
  recorder.print("here we are");
  recorder.note("kind", "for both");
  EXPECT_THAT(listener.lines, ::testing::ElementsAre("here we are", "for both"));
  std::ifstream file(config.run_dir + "/events.jsonl");
  const std::string events{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(events, ::testing::HasSubstr("for both"));
  EXPECT_THAT(events, ::testing::Not(::testing::HasSubstr("here we are")));
}

TEST(RunRecorder, ChangesOfViewAreAtTheStepThatParameterServersHaveReached) {
  const test_support::TemporaryFolder folder;
  test_support::NobodyListens listener;
  const JobConfig config = small_job(folder);
  const std::unique_ptr<Job> job = prepare_job(config).value();
  const StartingPoint start{10, "abcd"};
  const std::unique_ptr<RunDirectory> directory = RunDirectory::create(config, start).value();
  RunHistory history;
  history.start = start;
  RunRecorder recorder(*job, *directory, listener, history, {});
  recorder.on_view(monotonic_now(), view_of_one(1, 1));
  for (std::uint64_t step = 11; step <= 15; ++step) {
    StepRecord record;
    record.step = step;
    record.samples = 16;
    record.view = 1;
    record.sample_hash = "00";
    recorder.on_report(MemberId{1}, encode_record(record), monotonic_now());
  }
  recorder.on_view(monotonic_now(), view_of_one(2, 2));
  elastic::Recovery recovery;
  recovery.committed = Step{1};
  recovery.new_view = ViewId{2};
  recorder.on_recovery(recovery);

  const RunHistory read = read_run_history(config.run_dir).value();
  ASSERT_EQ(read.workers.size(), 2u);
  EXPECT_EQ(read.workers[0].first_step, 10u);
  EXPECT_EQ(read.workers[0].last_step, 15u);
  EXPECT_EQ(read.workers[1].first_step, 15u);
  ASSERT_EQ(read.recoveries.size(), 1u);
  EXPECT_EQ(read.recoveries[0].step, 15u);
  EXPECT_EQ(recorder.progress().recoveries()[0].committed, Step{15});
}

}  // namespace
}  // namespace mayfly::engine
