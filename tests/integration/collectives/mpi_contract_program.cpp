// What every Group promises, for the mpi transport: each test is run by all ranks of an mpirun at
// once (tests/integration/collectives/mpi_contract_test.py).
//
// Usage: mpi_contract PAGE_FILE [gtest options]. Last line: "rank R: passed" or "rank R: failed".

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "collectives/plan/half_floats.hpp"
#include "collectives/plan/ring_schedule.hpp"
#include "tests/integration/collectives/mpi_contract.hpp"
#include "tests/integration/collectives/test_cluster.hpp"

namespace mayfly::collectives {
namespace {

using test::expect_ok;
using test::far;
using test::MpiContract;
using test::MpiRank;

constexpr std::size_t kCounts[] = {0, 1, 3, 1000, 65537, 1 << 20};

template <typename T>
std::vector<T> elements(std::uint32_t rank, std::size_t count) {
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<std::int64_t>((i * 2654435761U + rank * 40503U) % 2003U);
    out[i] = static_cast<T>((mixed - 1000) * (rank % 2 == 0 ? 1 : 3));
  }
  return out;
}

template <typename T>
std::vector<T> reduced(std::uint32_t size, std::size_t count, ReduceOp op) {
  std::vector<T> out = elements<T>(0, count);
  for (std::uint32_t rank = 1; rank < size; ++rank) {
    const std::vector<T> other = elements<T>(rank, count);
    for (std::size_t i = 0; i < count; ++i) {
      out[i] =
          op == ReduceOp::kSum ? static_cast<T>(out[i] + other[i]) : std::max(out[i], other[i]);
    }
  }
  return out;
}

// The numbers are small enough for sums of floats to be exact.
template <typename T>
void check_all_reduce(MpiRank& self, Group& group, DataType type) {
  for (const std::size_t count : kCounts) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      std::vector<T> data = elements<T>(self.rank(), count);
      expect_ok(group.all_reduce(data.data(), count, type, op)->wait(far()));
      EXPECT_EQ(data, reduced<T>(self.size(), count, op)) << count << " elements";
    }
  }
}

TEST_F(MpiContract, AllReduceIsRightForEveryTypeAndLength) {
  const auto group = self_.form(self_.everybody());
  check_all_reduce<std::int32_t>(self_, *group, DataType::kInt32);
  check_all_reduce<std::int64_t>(self_, *group, DataType::kInt64);
  check_all_reduce<std::int16_t>(self_, *group, DataType::kInt16);
  check_all_reduce<float>(self_, *group, DataType::kFloat32);
}

TEST_F(MpiContract, SumsOf16BitFloatsAreThoseOfOurKernels) {
  const auto group = self_.form(self_.everybody());
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    const bool half = type == DataType::kFloat16;
    std::vector<float> numbers(1001, 0.5F);
    std::vector<std::uint16_t> data(numbers.size());
    (half ? to_fp16 : to_bf16)(numbers, data);
    expect_ok(group->all_reduce(data.data(), data.size(), type, ReduceOp::kSum)->wait(far()));
    (half ? from_fp16 : from_bf16)(data, numbers);
    EXPECT_EQ(numbers, std::vector<float>(1001, 0.5F * static_cast<float>(self_.size())));
  }
}

// -0 is below +0 and any NaN above everything, whoever brings it.
TEST_F(MpiContract, TheMaximumOfFloatsIsATotalOrder) {
  const auto group = self_.form(self_.everybody());
  for (std::uint32_t special = 0; special < self_.size(); ++special) {
    const bool ours = self_.rank() == special;
    std::vector<float> data{ours ? 0.0F : -0.0F, ours ? std::nanf("1") : 1e30F};
    expect_ok(group->all_reduce(data.data(), 2, DataType::kFloat32, ReduceOp::kMax)->wait(far()));
    EXPECT_FALSE(std::signbit(data[0]));
    EXPECT_TRUE(std::isnan(data[1]));
  }
}

TEST_F(MpiContract, FloatSumsHaveTheSameBitsOnAllRanks) {
  const auto group = self_.form(self_.everybody());
  std::mt19937 random(self_.rank() + 1);
  std::uniform_real_distribution<float> numbers(-1, 1);
  for (const std::size_t count : {1UL, 17UL, 5000UL, 300001UL}) {
    std::vector<float> data(count);
    std::generate(data.begin(), data.end(), [&] { return numbers(random); });
    expect_ok(
        group->all_reduce(data.data(), count, DataType::kFloat32, ReduceOp::kSum)->wait(far()));
    std::vector<float> all(count * self_.size());
    expect_ok(
        group->all_gather(std::as_bytes(std::span(data)), std::as_writable_bytes(std::span(all)))
            ->wait(far()));
    for (std::size_t at = 0; at < all.size(); at += count) {
      EXPECT_EQ(std::memcmp(all.data() + at, data.data(), count * sizeof(float)), 0);
    }
  }
}

TEST_F(MpiContract, ReduceScatterLeavesEachMemberItsOwnSegmentOfTheSum) {
  const auto group = self_.form(self_.everybody());
  for (const std::size_t count : kCounts) {
    auto data = elements<std::int32_t>(self_.rank(), count);
    expect_ok(
        group->reduce_scatter(data.data(), count, DataType::kInt32, ReduceOp::kSum)->wait(far()));
    const auto expected = reduced<std::int32_t>(self_.size(), count, ReduceOp::kSum);
    const Segment own = segment_of(count, self_.size(), self_.rank());
    const auto first = static_cast<std::ptrdiff_t>(own.offset);
    const auto last = static_cast<std::ptrdiff_t>(own.offset + own.count);
    EXPECT_TRUE(std::equal(data.begin() + first, data.begin() + last, expected.begin() + first));
  }
}

TEST_F(MpiContract, BroadcastCopiesTheRootsBytesWhoeverIsRoot) {
  const auto group = self_.form(self_.everybody());
  for (const std::size_t count : kCounts) {
    for (std::uint32_t root = 0; root < self_.size(); root += 2) {
      auto data = elements<std::int32_t>(self_.rank(), count);
      expect_ok(group->broadcast(std::as_writable_bytes(std::span(data)), Rank{root})->wait(far()));
      EXPECT_EQ(data, elements<std::int32_t>(root, count));
    }
  }
}

TEST_F(MpiContract, AllGatherConcatenatesByRank) {
  const auto group = self_.form(self_.everybody());
  for (const std::size_t count : {0, 1, 3, 1000, 65537}) {
    std::vector<std::int32_t> expected;
    for (std::uint32_t rank = 0; rank < self_.size(); ++rank) {
      const auto part = elements<std::int32_t>(rank, count);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const auto mine = elements<std::int32_t>(self_.rank(), count);
    std::vector<std::int32_t> all(count * self_.size());
    expect_ok(
        group->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)))
            ->wait(far()));
    EXPECT_EQ(all, expected);
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
  constexpr std::size_t kOperations = 20;
  const auto group = self_.form(self_.everybody());
  std::vector<std::vector<std::int64_t>> data;
  std::vector<std::unique_ptr<Work>> works;
  for (std::size_t i = 0; i < kOperations; ++i) {
    data.push_back(elements<std::int64_t>(self_.rank(), 100 * i * i));
  }
  for (auto& d : data) {
    works.push_back(group->all_reduce(d.data(), d.size(), DataType::kInt64, ReduceOp::kSum));
  }
  for (std::size_t i = kOperations; i-- > 0;) {  // waiting in another order is fine
    expect_ok(works[i]->wait(far()));
    EXPECT_EQ(data[i], reduced<std::int64_t>(self_.size(), data[i].size(), ReduceOp::kSum));
    EXPECT_GT(works[i]->finished_at(), Instant{});
  }
}

TEST_F(MpiContract, AnOperationThatNobodyWaitsForIsCarriedOutToo) {
  const auto group = self_.form(self_.everybody());
  auto data = elements<std::int32_t>(self_.rank(), 1000);
  const auto work = group->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum);
  const Instant hang = far();
  while (work->finished_at() == Instant{} && monotonic_now() < hang) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(data, reduced<std::int32_t>(self_.size(), 1000, ReduceOp::kSum));
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
