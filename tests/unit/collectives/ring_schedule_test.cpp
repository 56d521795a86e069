#include "collectives/plan/ring_schedule.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace mayfly::collectives {
namespace {

using Data = std::vector<std::vector<std::uint64_t>>;  // by rank

// Runs all members' schedules in memory, one segment per turn, and checks the flow-control rule:
// the outgoing segment i + 1 is the incoming segment i.
void run(const std::vector<RingSchedule>& schedules, Data& data) {
  const std::size_t size = schedules.size();
  std::size_t steps = 0;
  for (const RingSchedule& s : schedules) {
    steps = std::max(steps, s.incoming.size());
    const std::size_t shift = s.outgoing.size() > s.incoming.size() ? 1 : 0;
    for (std::size_t i = 1; shift == 0 && i < s.outgoing.size(); ++i) {
      ASSERT_EQ(s.outgoing[i], s.incoming[i - 1]);
    }
  }
  for (std::size_t step = 0; step < steps; ++step) {
    const Data before = data;
    for (std::size_t r = 0; r < size; ++r) {
      const std::size_t previous = (r + size - 1) % size;
      if (step >= schedules[r].incoming.size()) {
        continue;
      }
      const Segment from = schedules[previous].outgoing.at(step);
      const Segment to = schedules[r].incoming[step];
      ASSERT_EQ(from.count, to.count);
      for (std::size_t i = 0; i < to.count; ++i) {
        const std::uint64_t arrived = before[previous][from.offset + i];
        std::uint64_t& mine = data[r][to.offset + i];
        mine = step < schedules[r].reduced ? mine + arrived : arrived;
      }
    }
  }
}

TEST(SegmentOf, TilesEveryCountWithSizesThatDifferByAtMostOne) {
  for (std::size_t count = 0; count < 40; ++count) {
    for (std::uint32_t parts = 1; parts < 12; ++parts) {
      std::size_t end = 0;
      for (std::uint32_t i = 0; i < parts; ++i) {
        const Segment s = segment_of(count, parts, i);
        EXPECT_EQ(s.offset, end);
        EXPECT_GE(s.count, count / parts);
        EXPECT_LE(s.count, (count + parts - 1) / parts);
        end += s.count;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST(AllReduceSchedule, EveryMemberEndsWithTheSumForEveryCountAndSize) {
  for (std::uint32_t size = 1; size <= 9; ++size) {
    for (const std::size_t count : {0, 1, 2, 3, 7, 8, 9, 100}) {
      std::vector<RingSchedule> schedules;
      Data data(size, std::vector<std::uint64_t>(count));
      for (std::uint32_t r = 0; r < size; ++r) {
        schedules.push_back(all_reduce_schedule(count, size, Rank{r}));
        for (std::size_t i = 0; i < count; ++i) {
          data[r][i] = (std::uint64_t{1} << (4 * r)) * (i % 15 + 1);
        }
      }
      std::vector<std::uint64_t> expected(count);
      for (const auto& row : data) {
        for (std::size_t i = 0; i < count; ++i) {
          expected[i] += row[i];
        }
      }
      run(schedules, data);
      for (const auto& row : data) {
        EXPECT_EQ(row, expected) << size << " members, " << count << " elements";
      }
    }
  }
}

TEST(AllGatherSchedule, EveryMemberEndsWithEveryRange) {
  for (std::uint32_t size = 1; size <= 9; ++size) {
    for (const std::size_t each : {0, 1, 5}) {
      std::vector<RingSchedule> schedules;
      Data data(size, std::vector<std::uint64_t>(each * size));
      std::vector<std::uint64_t> expected(each * size);
      std::iota(expected.begin(), expected.end(), 100U);
      for (std::uint32_t r = 0; r < size; ++r) {
        schedules.push_back(all_gather_schedule(each, size, Rank{r}));
        for (std::size_t i = r * each; i < (r + 1) * each; ++i) {
          data[r][i] = expected[i];
        }
      }
      run(schedules, data);
      for (const auto& row : data) {
        EXPECT_EQ(row, expected);
      }
    }
  }
}

TEST(BroadcastSchedule, IsAChainFromTheRoot) {
  for (std::uint32_t size = 1; size <= 5; ++size) {
    for (std::uint32_t root = 0; root < size; ++root) {
      for (std::uint32_t r = 0; r < size; ++r) {
        const RingSchedule s = broadcast_schedule(7, size, Rank{r}, Rank{root});
        EXPECT_EQ(s.incoming.size(), r == root ? 0U : 1U);
        EXPECT_EQ(s.outgoing.size(), (r + 1) % size == root ? 0U : 1U);
      }
    }
  }
}

}  // namespace
}  // namespace mayfly::collectives
