#include "elastic/net/progress_board.hpp"

#include <gtest/gtest.h>

#include "elastic/net/sentinel_process.hpp"

namespace mayfly::elastic {
namespace {

TEST(ProgressBoard, SaysWhatTheTrainerTurnedTo) {
  ProgressBoard board;
  EXPECT_EQ(board.position().activity, Activity::kIdle);
  board.enter(Activity::kExchange, Step{1'000'000'000}, 12);
  const WorkerPosition position = board.position();
  EXPECT_EQ(position.activity, Activity::kExchange);
  EXPECT_EQ(position.step, Step{1'000'000'000});
  EXPECT_EQ(position.bucket, 12u);
  EXPECT_EQ(position.microbatch, kNoPart);
}

TEST(ProgressBoard, NamesTheComputeThreadThatHasNotMovedForTheLongest) {
  ProgressBoard board;
  board.enter(Activity::kCompute, Step{4}, 0);
  board.compute(0, Activity::kCompute, 7);
  board.compute(1, Activity::kCompute, 8);
  board.passed(1, 0);
  board.passed(0, 0);
  board.passed(0, 1);
  EXPECT_EQ(board.position().microbatch, 8u);
  EXPECT_EQ(board.position().bucket, 1u);
  board.rest(1);
  EXPECT_EQ(board.position().microbatch, 7u);
  EXPECT_EQ(board.position().bucket, 2u);
}

TEST(ProgressBoard, TellsWaitingForDataFromComputing) {
  ProgressBoard board;
  board.enter(Activity::kCompute, Step{4}, 0);
  board.compute(0, Activity::kLoad, 3);
  EXPECT_EQ(board.position().activity, Activity::kLoad);
  EXPECT_EQ(board.position().microbatch, 3u);
}

TEST(ProgressBoard, EverythingDoneIsAMove) {
  ProgressBoard board;
  std::uint64_t before = board.position().moves;
  const auto moved = [&] { return std::exchange(before, board.position().moves) < before; };
  board.enter(Activity::kCompute, Step{1});
  EXPECT_TRUE(moved());
  board.compute(0, Activity::kCompute, 1);
  EXPECT_TRUE(moved());
  board.passed(0, 1);
  EXPECT_TRUE(moved());
  board.rest(0);
  EXPECT_TRUE(moved());
  EXPECT_FALSE(moved());
}

TEST(ProgressBoard, FitsThePageThatWorkerAndSentinelShare) {
  EXPECT_LE(sizeof(SentinelShared), 4096u);
}

}  // namespace
}  // namespace mayfly::elastic
