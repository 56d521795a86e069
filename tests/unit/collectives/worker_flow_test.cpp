// Single decisions of a worker's flow: what it requests and computes, and which slices it regards
// as done. Whole jobs are in tests/sim.

#include "collectives/parameter_server/core/worker_flow.hpp"

#include <gtest/gtest.h>

#include <variant>
#include <vector>

namespace mayfly::parameter_server {
namespace {

using namespace flow;
using Shards = std::vector<std::uint32_t>;

Lease of_step(std::uint64_t serial, std::uint64_t slice, std::uint64_t version) {
  return {.serial = serial, .first = slice, .count = 1, .version = version};
}

Lease of_any_version(std::uint64_t serial, std::uint64_t slice) {
  return {.serial = serial, .first = slice, .count = 1};
}

/// A flow with two shards.
class WorkerFlowTest : public testing::Test {
 protected:
  Pull pull() {
    const FlowAction action = flow.next();
    return std::holds_alternative<Pull>(action) ? std::get<Pull>(action) : Pull{};
  }
  Compute compute() {
    const FlowAction action = flow.next();
    return std::holds_alternative<Compute>(action) ? std::get<Compute>(action) : Compute{};
  }
  bool adopts() { return std::holds_alternative<Adopt>(flow.next()); }
  bool waits() { return std::holds_alternative<Wait>(flow.next()); }
  bool rests() { return std::holds_alternative<Rest>(flow.next()); }

  WorkerFlow flow{2};
};

TEST_F(WorkerFlowTest, AsksForThePresentParametersIfAnotherStepIsWaitedForInVain) {
  flow.granted(of_step(1, 8, 8));
  const Pull first = pull();
  EXPECT_EQ(first.shards, (Shards{0, 1}));
  EXPECT_EQ(first.version, 8u);
  flow.answered(0, 8);
  ASSERT_TRUE(waits()) << "the other shard lacks a slice of step 7";

  flow.granted(of_any_version(2, 7));
  const Pull anew = pull();
  EXPECT_EQ(anew.shards, (Shards{1}));
  EXPECT_EQ(anew.version, 0u);
  EXPECT_FALSE(flow.expects(1, first.question));
  EXPECT_TRUE(flow.expects(1, anew.question));
  flow.answered(1, 7);
  ASSERT_TRUE(adopts());
  EXPECT_EQ(compute().slice, 7u);
}

TEST_F(WorkerFlowTest, AnAnswerToAnEarlierQuestionDoesNotSayThatAPushArrived) {
  flow.granted(of_any_version(1, 0));
  const Pull asked = pull();
  ASSERT_EQ(asked.shards, (Shards{0, 1}));
  flow.answered(0, 1);
  flow.answered(1, 1);
  ASSERT_TRUE(adopts());
  const Compute repeat = compute();
  EXPECT_EQ(repeat.pulls, (Shards{0, 1}));
  flow.granted(of_step(2, 1, 1));
  const Compute next = compute();
  EXPECT_EQ(next.slice, 1u);
  EXPECT_EQ(next.pulls, (Shards{0, 1})) << "the question before was sent before this push";
  EXPECT_FALSE(flow.expects(0, repeat.question));
  flow.answered(0, 2);
  EXPECT_EQ(flow.done_through(), 0u);
  flow.answered(1, 2);
  ASSERT_TRUE(adopts());
  EXPECT_EQ(flow.done_through(), 2u);
  EXPECT_TRUE(rests());
}

TEST_F(WorkerFlowTest, AsksOnceForAllSlicesOfAStep) {
  flow.granted({.serial = 1, .first = 0, .count = 1, .version = 0});
  (void)pull();
  flow.answered(0, 0);
  flow.answered(1, 0);
  ASSERT_TRUE(adopts());
  EXPECT_EQ(compute().pulls, (Shards{0, 1}));
  flow.granted(of_step(2, 1, 0));  // a slice of the same step that another worker had before
  EXPECT_TRUE(compute().pulls.empty());
}

TEST_F(WorkerFlowTest, SaysOnceThatItRestsUntilItHasDoneMoreOrAConnectionIsNew) {
  flow.granted(of_any_version(1, 0));
  (void)pull();
  flow.answered(0, 1);
  flow.answered(1, 1);
  ASSERT_TRUE(adopts());
  EXPECT_EQ(compute().slice, 0u);
  EXPECT_TRUE(waits()) << "for the answers";
  flow.answered(0, 2);
  EXPECT_TRUE(waits());
  flow.answered(1, 2);
  ASSERT_TRUE(adopts());
  EXPECT_EQ(flow.done_through(), 1u);
  EXPECT_TRUE(rests());
  EXPECT_TRUE(waits());
  flow.reconnected(0);
  EXPECT_TRUE(rests());
  EXPECT_TRUE(waits());
  flow.granted(of_any_version(2, 5));
  EXPECT_EQ(pull().shards, (Shards{0, 1})) << "what it had grew old";
}

TEST_F(WorkerFlowTest, PushesTheSlicesOfALeaseOneByOneAndAsksWithTheLast) {
  flow.granted({.serial = 1, .first = 4, .count = 3, .version = 0, .clock = 7});
  (void)pull();
  flow.answered(0, 0);
  flow.answered(1, 0);
  ASSERT_TRUE(adopts());
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Compute action = compute();
    EXPECT_EQ(action.slice, 4 + i);
    EXPECT_EQ(action.clock, 8 + i);
    EXPECT_EQ(action.pulls, i < 2 ? Shards{} : (Shards{0, 1}));
    EXPECT_EQ(action.wants_lease, i == 2);
    EXPECT_EQ(action.version, i < 2 ? 0u : 1u);
  }
  EXPECT_EQ(flow.done_through(), 0u);
}

}  // namespace
}  // namespace mayfly::parameter_server
