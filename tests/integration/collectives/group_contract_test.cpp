// What every Group promises when nothing fails: right results, the same bits everywhere.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "collectives/group.hpp"
#include "collectives/plan/ring_schedule.hpp"
#include "tests/integration/collectives/test_cluster.hpp"

namespace mayfly::collectives {
namespace {

using test::Cluster;
using test::far;
using test::Kind;
using test::on_all;

class GroupContract : public testing::TestWithParam<Kind> {
 protected:
  // Gloo's threads spin when ranks outnumber cores, so it is asked for less.
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

template <typename T>
T element(std::uint32_t rank, std::size_t i) {
  const auto mixed = static_cast<std::int64_t>((i * 2654435761U + rank * 40503U) % 2000003U);
  return static_cast<T>(mixed - 1000000) * static_cast<T>(rank % 2 == 0 ? 1 : 3);
}

template <typename T>
std::vector<T> elements(std::uint32_t rank, std::size_t count) {
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = element<T>(rank, i);
  }
  return out;
}

template <typename T>
std::vector<T> reduced(std::uint32_t size, std::size_t count, ReduceOp op) {
  std::vector<T> out = elements<T>(0, count);
  for (std::uint32_t rank = 1; rank < size; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      const T other = element<T>(rank, i);
      out[i] = op == ReduceOp::kSum ? static_cast<T>(out[i] + other) : std::max(out[i], other);
    }
  }
  return out;
}

template <typename T>
void check_all_reduce(std::vector<std::unique_ptr<Group>>& groups, std::size_t count, DataType type,
                      ReduceOp op) {
  const auto size = static_cast<std::uint32_t>(groups.size());
  std::vector<std::vector<T>> data(size);
  on_all(size, [&](std::uint32_t rank) {
    data[rank] = elements<T>(rank, count);
    if (count % 2 == 0) {
      expect_ok(groups[rank]->all_reduce_blocking(data[rank].data(), count, type, op, far()));
    } else {
      expect_ok(groups[rank]->all_reduce(data[rank].data(), count, type, op)->wait(far()));
    }
  });
  const std::vector<T> expected = reduced<T>(size, count, op);
  for (std::uint32_t rank = 0; rank < size && count > 0; ++rank) {
    // Float sums may differ from the expected ones in their order, never among the members.
    const bool exact = op == ReduceOp::kMax || type != DataType::kFloat32;
    const std::vector<T>& reference = exact ? expected : data[0];
    EXPECT_EQ(std::memcmp(data[rank].data(), reference.data(), count * sizeof(T)), 0)
        << "rank " << rank << " of " << size << ", " << count << " elements";
    EXPECT_NEAR(static_cast<double>(data[rank][count / 2]),
                static_cast<double>(expected[count / 2]), exact ? 0.0 : 100.0);
  }
}

TEST_P(GroupContract, AllReduceIsExactForIntegersAndMaximaAndTheSameBitsOnAllRanks) {
  for (const std::uint32_t size : group_sizes()) {
    Cluster cluster(GetParam(), size);
    auto groups = cluster.form(ViewId{1}, size);
    for (const std::size_t count : counts(size)) {
      check_all_reduce<std::int32_t>(groups, count, DataType::kInt32, ReduceOp::kSum);
      check_all_reduce<std::int64_t>(groups, count, DataType::kInt64, ReduceOp::kSum);
      check_all_reduce<float>(groups, count, DataType::kFloat32, ReduceOp::kSum);
      check_all_reduce<std::int32_t>(groups, count, DataType::kInt32, ReduceOp::kMax);
      check_all_reduce<std::int64_t>(groups, count, DataType::kInt64, ReduceOp::kMax);
      check_all_reduce<float>(groups, count, DataType::kFloat32, ReduceOp::kMax);
    }
  }
}

TEST_P(GroupContract, SixteenMembersReduceToo) {
  constexpr std::uint32_t kSize = 16;
  Cluster cluster(GetParam(), kSize);
  auto groups = cluster.form(ViewId{1}, kSize);
  for (const std::size_t count : {15, 30011}) {
    check_all_reduce<std::int32_t>(groups, count, DataType::kInt32, ReduceOp::kSum);
    check_all_reduce<float>(groups, count, DataType::kFloat32, ReduceOp::kSum);
  }
}

TEST_P(GroupContract, AHundredMegabytesAreReduced) {
  Cluster cluster(GetParam(), 2);
  auto groups = cluster.form(ViewId{1}, 2);
  check_all_reduce<std::int32_t>(groups, 25'000'003, DataType::kInt32, ReduceOp::kSum);
}

// Around every size at which a transport changes its way.
TEST_P(GroupContract, NoSizeIsSpecial) {
  Cluster cluster(GetParam(), 3);
  auto groups = cluster.form(ViewId{1}, 3);
  for (const std::size_t bytes : {4096, 21845, 32768, 65536, 131072, 262144, 524288}) {
    for (const std::size_t count : {bytes / 4 - 1, bytes / 4, bytes / 4 + 1}) {
      check_all_reduce<std::int32_t>(groups, count, DataType::kInt32, ReduceOp::kSum);
    }
  }
}

TEST_P(GroupContract, SixteenBitTypesAreReduced) {
  constexpr std::uint32_t kSize = 3;
  Cluster cluster(GetParam(), kSize);
  auto groups = cluster.form(ViewId{1}, kSize);
  for (const std::size_t count : {1, 7, 5000, 100001}) {
    on_all(kSize, [&](std::uint32_t rank) {
      std::vector<std::uint16_t> fp16(count, 0x3c00);  // 1
      std::vector<std::uint16_t> bf16(count, 0x3f80);  // 1
      std::vector<std::int16_t> int16(count, static_cast<std::int16_t>(rank));
      const auto sum_fp16 =
          groups[rank]->all_reduce(fp16.data(), count, DataType::kFloat16, ReduceOp::kSum);
      const auto sum_bf16 =
          groups[rank]->all_reduce(bf16.data(), count, DataType::kBFloat16, ReduceOp::kSum);
      const auto max_int16 =
          groups[rank]->all_reduce(int16.data(), count, DataType::kInt16, ReduceOp::kMax);
      const auto is_refused = [](const Result<void>& done) {
        return !done.ok() && done.error().code == Errc::kUnsupported;
      };
      expect_ok(sum_fp16->wait(far()));
      expect_ok(sum_bf16->wait(far()));
      if (const Result<void> done = max_int16->wait(far()); !is_refused(done)) {
        expect_ok(done);
        EXPECT_EQ(int16, std::vector<std::int16_t>(count, kSize - 1));
      }
      EXPECT_EQ(fp16, std::vector<std::uint16_t>(count, 0x4200));  // 3
      EXPECT_EQ(bf16, std::vector<std::uint16_t>(count, 0x4040));
    });
  }
}

// A group of one too: what a job computes must not depend on the number of members.
TEST_P(GroupContract, AnyNanInAMaximumBecomesTheSameNan) {
  for (const std::uint32_t size : {1U, 2U, 3U}) {
    Cluster cluster(GetParam(), size);
    auto groups = cluster.form(ViewId{1}, size);
    on_all(size, [&](std::uint32_t rank) {
      std::vector<std::uint32_t> data{0x3f800000U + rank, rank == 0 ? 0xffc00123U : 0x40000000U};
      const auto work =
          groups[rank]->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kMax);
      expect_ok(work->wait(far()));
      EXPECT_EQ(data, (std::vector<std::uint32_t>{0x3f800000U + size - 1, 0x7fc00000U}));
    });
  }
}

TEST_P(GroupContract, ReduceScatterLeavesEachMemberItsOwnSegmentOfTheSum) {
  for (const std::uint32_t size : group_sizes()) {
    Cluster cluster(GetParam(), size);
    auto groups = cluster.form(ViewId{1}, size);
    for (const std::size_t count : counts(size)) {
      const auto expected = reduced<std::int32_t>(size, count, ReduceOp::kSum);
      on_all(size, [&](std::uint32_t rank) {
        auto data = elements<std::int32_t>(rank, count);
        const auto work =
            groups[rank]->reduce_scatter(data.data(), count, DataType::kInt32, ReduceOp::kSum);
        expect_ok(work->wait(far()));
        const Segment own = segment_of(count, size, rank);
        EXPECT_TRUE(std::equal(data.begin() + static_cast<std::ptrdiff_t>(own.offset),
                               data.begin() + static_cast<std::ptrdiff_t>(own.offset + own.count),
                               expected.begin() + static_cast<std::ptrdiff_t>(own.offset)));
      });
    }
  }
}

TEST_P(GroupContract, BroadcastCopiesTheRootsBytesWhoeverIsRoot) {
  for (const std::uint32_t size : group_sizes()) {
    Cluster cluster(GetParam(), size);
    auto groups = cluster.form(ViewId{1}, size);
    for (const std::size_t count : counts(size)) {
      for (std::uint32_t root = 0; root < size; root += 2) {
        on_all(size, [&](std::uint32_t rank) {
          std::vector<std::int32_t> data = elements<std::int32_t>(rank, count);
          const auto work =
              groups[rank]->broadcast(std::as_writable_bytes(std::span(data)), Rank{root});
          expect_ok(work->wait(far()));
          EXPECT_EQ(data, elements<std::int32_t>(root, count));
        });
      }
    }
  }
}

TEST_P(GroupContract, AllGatherConcatenatesByRank) {
  for (const std::uint32_t size : group_sizes()) {
    Cluster cluster(GetParam(), size);
    auto groups = cluster.form(ViewId{1}, size);
    for (const std::size_t count : {0, 1, 3, 1000, 65537}) {
      std::vector<std::int32_t> expected;
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        const auto part = elements<std::int32_t>(rank, count);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      on_all(size, [&](std::uint32_t rank) {
        const auto mine = elements<std::int32_t>(rank, count);
        std::vector<std::int32_t> all(count * size);
        const auto work = groups[rank]->all_gather(std::as_bytes(std::span(mine)),
                                                   std::as_writable_bytes(std::span(all)));
        expect_ok(work->wait(far()));
        EXPECT_EQ(all, expected);
      });
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
  constexpr std::uint32_t kSize = 3;
  constexpr std::size_t kOperations = 20;
  Cluster cluster(GetParam(), kSize);
  auto groups = cluster.form(ViewId{1}, kSize);
  on_all(kSize, [&](std::uint32_t rank) {
    std::vector<std::vector<std::int64_t>> data;
    std::vector<std::unique_ptr<Work>> works;
    for (std::size_t i = 0; i < kOperations; ++i) {
      data.push_back(elements<std::int64_t>(rank, 100 * i * i));
    }
    for (auto& d : data) {
      works.push_back(
          groups[rank]->all_reduce(d.data(), d.size(), DataType::kInt64, ReduceOp::kSum));
    }
    // Waiting in another order is fine.
    for (std::size_t i = kOperations; i-- > 0;) {
      expect_ok(works[i]->wait(far()));
      EXPECT_EQ(data[i], reduced<std::int64_t>(kSize, data[i].size(), ReduceOp::kSum));
    }
  });
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
    return;  // NCCL cannot tell (docs/gpu.md)
  }
  Cluster cluster(GetParam(), 2);
  auto groups = cluster.form(ViewId{1}, 2);
  on_all(2, [&](std::uint32_t rank) {
    std::vector<std::int32_t> data(1000);
    const auto work =
        groups[rank]->all_reduce(data.data(), 1000 - rank, DataType::kInt32, ReduceOp::kSum);
    const Result<void> result = work->wait(far());
    ASSERT_FALSE(result.ok());
    // The first to see it says so; the other may only see that its neighbour has left.
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
