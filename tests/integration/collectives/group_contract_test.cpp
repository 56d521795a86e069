// The promises that every Group keeps if nothing fails: right results, with the same bits on all
// members.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "collectives/group.hpp"
#include "tests/integration/collectives/group_checks.hpp"
#include "tests/integration/collectives/test_cluster.hpp"

namespace mayfly::collectives {
namespace {

using test::Cluster;
using test::far;
using test::GroupChecks;
using test::Kind;
using test::on_all;

class GroupContract : public testing::TestWithParam<Kind> {
 protected:
  // Gloo's threads spin, which is slow if there are more ranks than cores, so its groups are
  // smaller.
  static std::vector<std::uint32_t> group_sizes() {
    return GetParam() == Kind::kGloo ? std::vector<std::uint32_t>{1, 2, 3, 5}
                                     : std::vector<std::uint32_t>{1, 2, 3, 4, 5, 8};
  }
  static std::vector<std::size_t> counts(std::uint32_t group_size) {
    std::vector<std::size_t> counts{0, 1, 3, 1000, 65537};
    if (group_size <= 2) {
      counts.push_back(1 << 20);
    }
    return counts;
  }
};

void expect_ok(const Result<void>& result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().detail);
}

// Runs a check on all members of a group, each on a thread of its own.
template <typename Check>
void expect_right(std::vector<std::unique_ptr<Group>>& groups, const Check& check) {
  on_all(static_cast<std::uint32_t>(groups.size()), [&](std::uint32_t rank) {
    EXPECT_EQ(check(GroupChecks<>(*groups[rank])), "")
        << "rank " << rank << " of " << groups.size();
  });
}

TEST_P(GroupContract, AllReduceIsExactForWholeNumbersAndTheSameBitsOnAllRanks) {
  for (const std::uint32_t size : group_sizes()) {
    Cluster cluster(GetParam(), size);
    auto groups = cluster.form(ViewId{1}, size);
    for (const std::size_t count : counts(size)) {
      expect_right(groups, [&](auto checks) {
        return checks.all_reduces(count) + checks.float_sums(count);
      });
    }
  }
}

TEST_P(GroupContract, SixteenMembersReduceToo) {
  Cluster cluster(GetParam(), 16);
  auto groups = cluster.form(ViewId{1}, 16);
  for (const std::size_t count : {15, 30011}) {
    expect_right(groups, [&](auto checks) {
      return checks.template all_reduce<std::int32_t>(count, DataType::kInt32, ReduceOp::kSum) +
             checks.float_sums(count);
    });
  }
}

TEST_P(GroupContract, AHundredMegabytesAreReduced) {
  Cluster cluster(GetParam(), 2);
  auto groups = cluster.form(ViewId{1}, 2);
  expect_right(groups, [](auto checks) {
    return checks.template all_reduce<std::int32_t>(25'000'003, DataType::kInt32, ReduceOp::kSum);
  });
}

// Sizes around every limit at which a transport changes its algorithm.
TEST_P(GroupContract, NoSizeIsSpecial) {
  Cluster cluster(GetParam(), 3);
  auto groups = cluster.form(ViewId{1}, 3);
  for (const std::size_t bytes : {4096, 21845, 32768, 65536, 131072, 262144, 524288}) {
    for (const std::size_t count : {bytes / 4 - 1, bytes / 4, bytes / 4 + 1}) {
      expect_right(groups, [&](auto checks) {
        return checks.template all_reduce<std::int32_t>(count, DataType::kInt32, ReduceOp::kSum);
      });
    }
  }
}

TEST_P(GroupContract, SixteenBitTypesAreReduced) {
  Cluster cluster(GetParam(), 3);
  auto groups = cluster.form(ViewId{1}, 3);
  for (const std::size_t count : {1, 7, 5000, 100001}) {
    expect_right(groups, [&](auto checks) { return checks.half_sums(count); });
    on_all(3, [&](std::uint32_t rank) {
      std::vector<std::int16_t> int16(count, static_cast<std::int16_t>(rank));
      const auto work =
          groups[rank]->all_reduce(int16.data(), count, DataType::kInt16, ReduceOp::kMax);
      const Result<void> done = work->wait(far());
      if (done.ok() || done.error().code != Errc::kUnsupported) {
        expect_ok(done);
        EXPECT_EQ(int16, std::vector<std::int16_t>(count, 2));
      }
    });
  }
}

// A group of one must follow the same order, because the results of a job must not depend on the
// number of members.
TEST_P(GroupContract, MaximaOfFloatsAreATotalOrderWithOneNan) {
  for (const std::uint32_t size : {1U, 2U, 3U}) {
    Cluster cluster(GetParam(), size);
    auto groups = cluster.form(ViewId{1}, size);
    expect_right(groups, [](auto checks) { return checks.special_maxima(); });
  }
}

TEST_P(GroupContract, BroadcastAndAllGatherCopyWhatTheyAreGiven) {
  for (const std::uint32_t size : group_sizes()) {
    Cluster cluster(GetParam(), size);
    auto groups = cluster.form(ViewId{1}, size);
    for (const std::size_t count : counts(size)) {
      expect_right(groups, [&](auto checks) { return checks.all_gather(count); });
      for (std::uint32_t root = 0; root < size; root += 2) {
        expect_right(groups, [&](auto checks) { return checks.broadcast(count, root); });
      }
    }
  }
}

TEST_P(GroupContract, NobodyLeavesABarrierBeforeEverybodyHasEntered) {
  constexpr std::uint32_t kSize = 3;
  Cluster cluster(GetParam(), kSize);
  auto groups = cluster.form(ViewId{1}, kSize);
  std::atomic<std::uint32_t> entered{0};
  for (std::uint32_t round = 1; round <= 20; ++round) {
    on_all(kSize, [&](std::uint32_t rank) {
      ++entered;
      expect_ok(groups[rank]->barrier()->wait(far()));
      EXPECT_EQ(entered.load(), round * kSize);
      expect_ok(groups[rank]->barrier()->wait(far()));
    });
  }
}

TEST_P(GroupContract, SeveralOperationsMayBeInFlightAndRunInOrder) {
  Cluster cluster(GetParam(), 3);
  auto groups = cluster.form(ViewId{1}, 3);
  expect_right(groups, [](auto checks) { return checks.several_in_flight(); });
}

TEST_P(GroupContract, ADeadlineLeavesTheOperationRunning) {
  Cluster cluster(GetParam(), 2);
  auto groups = cluster.form(ViewId{1}, 2);
  std::int32_t first = 1;
  std::int32_t second = 2;
  const auto work = groups[0]->all_reduce(&first, 1, DataType::kInt32, ReduceOp::kSum);
  const Result<void> early = work->wait(monotonic_now() + milliseconds(1));
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, Errc::kDeadline);
  const auto other = groups[1]->all_reduce(&second, 1, DataType::kInt32, ReduceOp::kSum);
  expect_ok(other->wait(far()));
  expect_ok(work->wait(far()));
  EXPECT_EQ(first, 3);
  EXPECT_EQ(second, 3);
}

TEST_P(GroupContract, AfterItsDeadlineABlockingOperationHasAbortedTheGroup) {
  Cluster cluster(GetParam(), 2);
  auto groups = cluster.form(ViewId{1}, 2);
  std::int32_t alone = 1;
  const Result<void> early = groups[0]->all_reduce_blocking(
      &alone, 1, DataType::kInt32, ReduceOp::kSum, monotonic_now() + milliseconds(1));
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, Errc::kDeadline);
  const Result<void> later = groups[0]->barrier()->wait(far());
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().code, Errc::kAborted);
}

TEST_P(GroupContract, DifferentOperationsAreFoundOut) {
  if (GetParam() == Kind::kFakeNccl) {
    return;  // NCCL cannot detect it (docs/gpu.md)
  }
  Cluster cluster(GetParam(), 2);
  auto groups = cluster.form(ViewId{1}, 2);
  on_all(2, [&](std::uint32_t rank) {
    std::vector<std::int32_t> data(1000);
    const auto work =
        groups[rank]->all_reduce(data.data(), 1000 - rank, DataType::kInt32, ReduceOp::kSum);
    const Result<void> result = work->wait(far());
    ASSERT_FALSE(result.ok());
    // The first member to detect the mismatch reports it. The other member may only notice that the
    // first one has left.
    EXPECT_TRUE(result.error().code == Errc::kCorrupt || result.error().code == Errc::kPeerLost);
    groups[rank].reset();
  });
}

TEST_P(GroupContract, AGroupKnowsItsViewRankAndSize) {
  Cluster cluster(GetParam(), 2);
  const auto groups = cluster.form(ViewId{17}, 2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(groups[rank]->view(), ViewId{17});
    EXPECT_EQ(groups[rank]->rank(), Rank{rank});
    EXPECT_EQ(groups[rank]->size(), 2U);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, GroupContract, testing::ValuesIn(test::available_kinds()),
                         [](const auto& kind) { return test::name_of(kind.param); });

}  // namespace
}  // namespace mayfly::collectives
