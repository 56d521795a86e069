// Replays of steps: compared with closed forms, and calibrated with their own results.

#include "observe/core/step_replay.hpp"

#include <gtest/gtest.h>

namespace mayfly::observe {
namespace {

/// One worker of 8 microbatches with one thread for each purpose.
PipelineWorker worker_of(double compute_ms, double fetch_ms, double prep_ms) {
  PipelineWorker worker;
  worker.host = "a";
  worker.microbatches = 8;
  worker.ahead = 4;
  worker.compute_ms = compute_ms;
  worker.fetch_ms = fetch_ms;
  worker.prep_ms = prep_ms;
  return worker;
}

double step_ms(const PipelineWorker& worker, double exchange_ms = 0, double update_ms = 0) {
  return replay({{worker}, {}, exchange_ms, update_ms}).step_ms;
}

TEST(StepReplay, ComputingAloneIsTheSumOverMicrobatchesAndThreads) {
  EXPECT_NEAR(step_ms(worker_of(10, 0, 0), 5, 2), 87, 1e-6);
  PipelineWorker two_threads = worker_of(10, 0, 0);
  two_threads.compute_threads = 2;
  EXPECT_NEAR(step_ms(two_threads), 40, 1e-6);
  two_threads.microbatches = 7;  // one thread computes the last one alone
  EXPECT_NEAR(step_ms(two_threads), 40, 1e-6);
}

TEST(StepReplay, LoadingThatIsFasterIsHidden) {
  EXPECT_NEAR(step_ms(worker_of(10, 4, 5)), 80, 1e-6);
}

TEST(StepReplay, SlowLoadingLimitsTheStep) {
  // The loading thread begins the next microbatch while the compute thread computes one. Then the
  // compute thread waits for it.
  EXPECT_NEAR(step_ms(worker_of(10, 20, 10)), 8 * 30, 1e-6);
  PipelineWorker many = worker_of(10, 20, 10);
  many.load_threads = 4;
  many.ahead = 8;
  EXPECT_NEAR(step_ms(many), 80, 1e-6) << "four load one each 7.5 ms";
}

TEST(StepReplay, StorageOfARateServesOneMicrobatchAfterTheOther) {
  PipelineWorker worker = worker_of(1, 1000, 0);
  worker.load_threads = 4;
  worker.ahead = 8;
  worker.bytes = 1e5;
  worker.storage_rate = 10e6;  // 10 ms for each microbatch
  EXPECT_NEAR(step_ms(worker), 80, 1) << "instead of fetch_ms, however many threads wait";
}

TEST(StepReplay, VeryLongStepsEnd) {
  PipelineWorker worker = worker_of(1.0 / 3, 0, 1.0 / 7);
  worker.bytes = 1e9 / 3;
  worker.storage_rate = 1000;
  Pipeline pipeline{{worker, worker, worker}, {{"a", 1}}, 1.0 / 11, 0};
  EXPECT_NEAR(replay(pipeline).step_ms, 8 * 1e9 / 3, 1e5);
}

TEST(StepReplay, ThreadsOfAHostShareItsCores) {
  Pipeline pipeline{{worker_of(10, 0, 0), worker_of(10, 0, 0)}, {{"a", 1}}, 0, 0};
  EXPECT_NEAR(replay(pipeline).step_ms, 160, 1e-6);
  pipeline.workers[1].host = "b";
  EXPECT_NEAR(replay(pipeline).step_ms, 80, 1e-6);
  // One core computes for 10 ms and prepares for 5 ms, also if loading has a low priority.
  for (const bool yields : {false, true}) {
    PipelineWorker alone = worker_of(10, 0, 5);
    alone.yields = yields;
    EXPECT_NEAR(replay({{alone}, {{"a", 1}}, 0, 0}).step_ms, 120, 1e-6);
  }
}

TEST(StepReplay, LoadingGoesOnDuringTheExchange) {
  // Four microbatches are loaded in the 40 ms of exchange, and the other four while these are
  // computed.
  PipelineWorker worker = worker_of(10, 10, 0);
  EXPECT_NEAR(step_ms(worker, 40), 120, 1e-6);
}

TEST(StepReplay, AllWaitForTheSlowest) {
  const ReplayedStep step =
      replay({{worker_of(10, 0, 0), worker_of(25, 0, 0), worker_of(5, 0, 0)}, {}, 3, 0});
  EXPECT_NEAR(step.step_ms, 203, 1e-6);
  EXPECT_NEAR(step.computed_ms[0], 10, 1e-6);
  EXPECT_NEAR(step.computed_ms[1], 25, 1e-6);
}

TEST(StepReplay, CalibrationFindsWhatIsNoComputing) {
  PipelineWorker fast = worker_of(7, 3, 6);
  PipelineWorker slow = worker_of(11, 30, 2);
  fast.yields = slow.yields = true;
  slow.wait_ms = 9;
  Pipeline pipeline{{fast, slow}, {{"a", 2}}, 4, 1};
  const ReplayedStep truth = replay(pipeline);
  pipeline.workers[1].wait_ms = 0;
  calibrate(pipeline, truth.computed_ms);
  EXPECT_NEAR(pipeline.workers[0].wait_ms, 0, 0.2);
  EXPECT_NEAR(pipeline.workers[1].wait_ms, 9, 0.2);
  EXPECT_NEAR(replay(pipeline).step_ms, truth.step_ms, 0.02 * truth.step_ms);
}

TEST(StepReplay, WaitingForADeviceTakesNoCore) {
  PipelineWorker worker = worker_of(1, 0, 9);
  worker.wait_ms = 9;
  EXPECT_LT(replay({{worker}, {{"a", 1}}, 0, 0}).step_ms, 90) << "8 x 19 of one core otherwise";
}

}  // namespace
}  // namespace mayfly::observe
