// Tests of the promises of every Group, for the mpi transport. All ranks of an mpirun run each test
// at once (tests/integration/collectives/mpi_contract_test.py).
//
// Usage: mpi_contract PAGE_FILE [gtest options]. Last line: "rank R: passed" or "rank R: failed".

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/integration/collectives/group_checks.hpp"
#include "tests/integration/collectives/mpi_contract.hpp"
#include "tests/integration/collectives/test_cluster.hpp"

namespace mayfly::collectives {
namespace {

using test::expect_ok;
using test::far;
using test::GroupChecks;
using test::MpiContract;

constexpr std::size_t kCounts[] = {0, 1, 3, 1000, 65537, 1 << 20};

TEST_F(MpiContract, AllReduceIsRightForEveryTypeAndLength) {
  const auto group = self_.form(self_.everybody());
  GroupChecks<> checks(*group);
  for (const std::size_t count : kCounts) {
    EXPECT_EQ(checks.all_reduces(count), "");
    EXPECT_EQ(checks.all_reduce<std::int16_t>(count, DataType::kInt16, ReduceOp::kSum), "");
    EXPECT_EQ(checks.all_reduce<std::int16_t>(count, DataType::kInt16, ReduceOp::kMax), "");
    EXPECT_EQ(checks.float_sums(count), "");
  }
  EXPECT_EQ(checks.half_sums(1001), "");
  EXPECT_EQ(checks.special_maxima(), "");
}

TEST_F(MpiContract, BroadcastAndAllGatherCopyWhatTheyAreGiven) {
  const auto group = self_.form(self_.everybody());
  GroupChecks<> checks(*group);
  for (const std::size_t count : kCounts) {
    EXPECT_EQ(checks.all_gather(count), "");
    for (std::uint32_t root = 0; root < self_.size(); root += 2) {
      EXPECT_EQ(checks.broadcast(count, root), "");
    }
  }
}

TEST_F(MpiContract, NobodyLeavesABarrierBeforeEverybodyHasEntered) {
  const auto group = self_.form(self_.everybody());
  std::atomic<std::uint32_t>& entered = self_.page().entered;
  for (std::uint32_t round = 1; round <= 20; ++round) {
    ++entered;
    expect_ok(group->barrier()->wait(far()));
    EXPECT_EQ(entered.load(), round * self_.size());
    expect_ok(group->barrier()->wait(far()));
  }
}

TEST_F(MpiContract, SeveralOperationsMayBeInFlightAndRunInOrder) {
  const auto group = self_.form(self_.everybody());
  EXPECT_EQ(GroupChecks<>(*group).several_in_flight(), "");
}

TEST_F(MpiContract, AnOperationThatNobodyWaitsForIsCarriedOutToo) {
  const auto group = self_.form(self_.everybody());
  auto data = test::elements<std::int32_t>(self_.rank(), 1000);
  const auto work = group->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
  const Instant hang = far();
  while (work->finished_at() == Instant{} && monotonic_now() < hang) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(data, test::reduced<std::int32_t>(self_.size(), 1000, ReduceOp::kSum));
}

TEST_F(MpiContract, ADeadlineLeavesTheOperationRunning) {
  const auto everybody = self_.everybody();
  const auto group = self_.form(everybody);
  std::int32_t one = 1;
  std::unique_ptr<Work> work;
  if (self_.rank() == 0 && self_.size() > 1) {
    work = group->all_reduce(&one, 1, DataType::kInt32, ReduceOp::kSum);
    const Result<void> early = work->wait(monotonic_now() + milliseconds(1));
    ASSERT_FALSE(early.ok());
    EXPECT_EQ(early.error().code, Errc::kDeadline);
  }
  self_.meet(everybody);
  if (work == nullptr) {
    work = group->all_reduce(&one, 1, DataType::kInt32, ReduceOp::kSum);
  }
  expect_ok(work->wait(far()));
  EXPECT_EQ(one, static_cast<std::int32_t>(self_.size()));
}

}  // namespace
}  // namespace mayfly::collectives

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  auto& self = mayfly::collectives::test::MpiRank::start(argc > 1 ? argv[1] : "");
  const bool passed = RUN_ALL_TESTS() == 0;
  std::printf("rank %u: %s\n", self.rank(), passed ? "passed" : "failed");
  std::fflush(stdout);
  self.finish();
  return passed ? 0 : 1;
}
