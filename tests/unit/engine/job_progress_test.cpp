#include "engine/run/job_progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

using ::testing::ElementsAre;

constexpr Instant kBegin{1'000'000'000};

class JobProgressTest : public ::testing::Test {
 protected:
  JobProgressTest() {
    job_.config.global_batch = 16;
    job_.config.run_dir = "/nowhere";
    job_.total_steps = 40;
  }

  static StepRecord step(std::uint64_t number, std::uint64_t view = 1) {
    StepRecord record;
    record.step = number;
    record.samples = 16;
    record.view = view;
    record.images_per_second = 100;
    return record;
  }
  static ViewEvent view(std::uint64_t number, std::uint64_t committed) {
    return {number, committed, {number}, {"host"}, {}};
  }
  static CheckpointRecord written(std::uint64_t step) {
    return {step, true, "worker's " + std::to_string(step)};
  }
  static ReceivedCheckpoint received(std::uint64_t step) {
    ReceivedCheckpoint checkpoint;
    checkpoint.step = Step{step};
    checkpoint.path = "ours " + std::to_string(step);
    return checkpoint;
  }
  static void commit(JobProgress& progress, std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t number = first; number <= last; ++number) {
      EXPECT_TRUE(progress.committed(step(number), kBegin + seconds(static_cast<int>(number))));
    }
  }

  Job job_;
};

TEST_F(JobProgressTest, AStepCountsOnce) {
  JobProgress progress(job_, {});
  commit(progress, 1, 3);
  EXPECT_FALSE(progress.committed(step(3), kBegin)) << "the next reporter repeats it";
  EXPECT_EQ(progress.last_step(), 3U);
  EXPECT_EQ(progress.images_per_second(), 100);
  const Summary summary = progress.summary();
  EXPECT_EQ(summary.samples, 48U);
  EXPECT_DOUBLE_EQ(summary.train_seconds, 2);
}

TEST_F(JobProgressTest, ARecordThatIsMissingMayStillCome) {
  JobProgress progress(job_, {});
  commit(progress, 1, 1);
  EXPECT_TRUE(progress.committed(step(3), kBegin));
  EXPECT_THAT(progress.missing_records().first(9), ElementsAre(2U));
  EXPECT_TRUE(progress.committed(step(2), kBegin));
  EXPECT_THAT(progress.missing_records().first(9), ElementsAre());
  EXPECT_EQ(progress.last_step(), 3U);
}

/// If the claim is false, it must not use up the memory of the coordinator's host.
TEST_F(JobProgressTest, AClaimedStepOfAHugeJobCostsNoMemoryForTheStepsBeforeIt) {
  constexpr std::uint64_t kFar = std::uint64_t{1} << 40;
  job_.total_steps = kFar;
  JobProgress progress(job_, {});
  commit(progress, 1, 3);
  EXPECT_TRUE(progress.committed(step(kFar), kBegin));
  EXPECT_EQ(progress.missing_records().size(), kFar - 4);
  EXPECT_TRUE(progress.committed(step(5), kBegin));
  EXPECT_FALSE(progress.committed(step(5), kBegin));
  EXPECT_THAT(progress.missing_records().first(3), ElementsAre(4U, 6U, 7U));
  EXPECT_EQ(progress.missing_records().size(), kFar - 5);
}

TEST_F(JobProgressTest, AStepThatTheJobDoesNotHaveIsNotBelieved) {
  JobProgress progress(job_, {});
  commit(progress, 1, 3);
  EXPECT_FALSE(progress.committed(step(41), kBegin));
  EXPECT_FALSE(progress.committed(step(UINT64_MAX), kBegin));
  StateRecord state;
  state.step = UINT64_MAX;
  progress.has_state(state);
  EXPECT_EQ(progress.last_step(), 3U);
  EXPECT_THAT(progress.missing_records().first(9), ElementsAre());
  EXPECT_TRUE(progress.committed(step(4), kBegin));
}

TEST_F(JobProgressTest, AViewThatIsOnRecordChangesNothing) {
  JobProgress progress(job_, {});
  const auto change = progress.view_published(view(1, 0), 0, false);
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->committed, 0U);
  EXPECT_EQ(change->undone, 0U);
  EXPECT_FALSE(progress.view_published(view(1, 0), 0, false).has_value());
}

TEST_F(JobProgressTest, ARestartUndoesTheStepsThatNobodyHas) {
  JobProgress progress(job_, {});
  ASSERT_TRUE(progress.view_published(view(1, 0), 0, false).has_value());
  commit(progress, 1, 5);
  const auto change = progress.view_published(view(2, 2), 1, true);
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->undone, 3U);
  EXPECT_EQ(progress.last_step(), 2U);
  EXPECT_FALSE(progress.committed(step(6, 1), kBegin)) << "of a worker that was cut off";
  EXPECT_EQ(progress.last_step(), 2U);
  EXPECT_EQ(progress.summary().undone_samples, 48U);
}

TEST_F(JobProgressTest, ParameterServersCountTheSteps) {
  job_.config.sync = "bsp";
  JobProgress progress(job_, {});
  commit(progress, 1, 5);
  EXPECT_EQ(progress.view_published(view(1, 2), 0, false)->committed, 5U);
  elastic::Recovery recovery;
  recovery.committed = Step{2};
  EXPECT_EQ(progress.recovered(recovery, 0).step, 5U);
  EXPECT_EQ(progress.recoveries()[0].committed, Step{5});
  FallBackRecord fell_back;
  fell_back.at = 7;
  fell_back.step = 3;
  const auto undone = progress.fell_back(fell_back);
  ASSERT_TRUE(undone.has_value());
  EXPECT_EQ(undone->undone_steps, 2U);
  EXPECT_EQ(undone->undone_samples, 32U);
  EXPECT_FALSE(progress.fell_back(fell_back).has_value()) << "the shard's follower repeats it";
}

TEST_F(JobProgressTest, TheLastCheckpointIsTheNewestOrOursOfTheSameStep) {
  JobProgress progress(job_, {});
  EXPECT_TRUE(progress.checkpointed(written(10)));
  EXPECT_FALSE(progress.checkpointed(written(10))) << "a report that is repeated";
  EXPECT_EQ(progress.last_checkpoint(), "worker's 10");
  progress.received(received(20));
  EXPECT_TRUE(progress.checkpointed(written(20)));
  EXPECT_EQ(progress.last_checkpoint(), "ours 20");
  EXPECT_TRUE(progress.checkpointed(written(30)));
  EXPECT_EQ(progress.last_checkpoint(), "worker's 30");
  EXPECT_TRUE(progress.has_checkpoint(Step{30}));
  EXPECT_FALSE(progress.has_checkpoint(Step{40}));
}

TEST_F(JobProgressTest, AStateIsSavedByACheckpointOfItsStep) {
  JobProgress progress(job_, {});
  EXPECT_FALSE(progress.unsaved_state().has_value()) << "nothing was computed";
  commit(progress, 1, 2);
  EXPECT_EQ(
      progress.unsaved_state(),
      "the last state is lost: no process has written a checkpoint of step 2, and there is no "
      "earlier one");
  EXPECT_TRUE(progress.checkpointed({2, false, "no space"}));
  EXPECT_EQ(progress.unsaved_state(), "the last state is lost: no space");
  progress.received(received(2));
  EXPECT_FALSE(progress.unsaved_state().has_value());
}

TEST_F(JobProgressTest, ACheckpointFromBeforeARestartNoLongerCounts) {
  JobProgress progress(job_, {});
  ASSERT_TRUE(progress.view_published(view(1, 0), 0, false).has_value());
  commit(progress, 1, 6);
  progress.received(received(5));
  EXPECT_TRUE(progress.checkpointed({6, false, "no space"}));
  ASSERT_TRUE(progress.view_published(view(2, 3), 1, true).has_value()) << "5 was damaged";
  EXPECT_FALSE(progress.committed(step(4, 2), kBegin)) << "it is on record already";
  ASSERT_EQ(progress.last_step(), 4U);
  ASSERT_TRUE(progress.unsaved_state().has_value());
  EXPECT_EQ(progress.unsaved_state(),
            "the last state is lost: no process has written a checkpoint of step 4, and there is "
            "no earlier one");
  progress.received(received(4));
  EXPECT_FALSE(progress.unsaved_state().has_value());
}

TEST_F(JobProgressTest, ACheckpointOfUndoneStepsNoLongerCounts) {
  job_.config.sync = "bsp";
  JobProgress progress(job_, {});
  commit(progress, 1, 6);
  progress.received(received(5));
  EXPECT_TRUE(progress.checkpointed({6, false, "no space"}));
  FallBackRecord fell_back;
  fell_back.at = 7;
  fell_back.step = 3;
  ASSERT_TRUE(progress.fell_back(fell_back).has_value());
  commit(progress, 4, 4);
  EXPECT_TRUE(progress.checkpointed(written(4)));
  EXPECT_EQ(progress.last_checkpoint(), "worker's 4");
  ASSERT_TRUE(progress.unsaved_state().has_value());
  EXPECT_EQ(progress.unsaved_state()->find("no space"), std::string::npos);
}

}  // namespace
}  // namespace mayfly::engine
