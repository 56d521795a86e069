#include "engine/run/step_set.hpp"

#include <gmock/gmock.h>

#include <set>

#include "base/random.hpp"

namespace mayfly::engine {
namespace {

TEST(StepSet, HasTheStepsOfAnOrdinarySet) {
  RandomStream random{CounterRandom(3)};
  for (int round = 0; round < 200; ++round) {
    StepSet steps;
    std::set<std::uint64_t> expected;
    std::uint64_t last = random.below(3);
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t number = random.below(50);
      switch (random.below(3)) {
        case 0: {
          const std::uint64_t first = last + 1 + random.below(3);
          last = first + random.below(4) - 1;
          steps.append(first, last);
          for (std::uint64_t step = first; step <= last; ++step) {
            expected.insert(step);
          }
          break;
        }
        case 1:
          steps.erase(number);
          expected.erase(number);
          break;
        default:
          steps.erase_after(last - std::min(last, number / 10));
          expected.erase(expected.upper_bound(last - std::min(last, number / 10)), expected.end());
      }
      ASSERT_EQ(steps.size(), expected.size());
      EXPECT_EQ(steps.empty(), expected.empty());
      EXPECT_EQ(steps.contains(number), expected.contains(number));
      EXPECT_THAT(steps.first(1000), testing::ElementsAreArray(expected));
      EXPECT_EQ(steps.first(2).size(), std::min<std::size_t>(2, expected.size()));
    }
  }
}

TEST(StepSet, HoldsAnyNumberOfSteps) {
  StepSet steps;
  steps.append(2, UINT64_MAX);
  EXPECT_EQ(steps.size(), UINT64_MAX - 1);
  steps.erase(UINT64_MAX);
  EXPECT_FALSE(steps.contains(UINT64_MAX));
  steps.erase_after(7);
  EXPECT_THAT(steps.first(100), testing::ElementsAre(2, 3, 4, 5, 6, 7));
}

}  // namespace
}  // namespace mayfly::engine
