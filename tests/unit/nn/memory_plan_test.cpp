#include "nn/cpu/arena.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"

namespace mayfly::nn::cpu {
namespace {

bool share_bytes(const PlannedTensor& a, const PlannedTensor& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

TEST(MemoryPlan, TensorsThatLiveAtTheSameTimeShareNothing) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random{CounterRandom(seed)};
    MemoryPlan plan;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random.below(40));
      plan.add("tensor", 1 + random.below(100'000),
               {first, first + static_cast<int>(random.below(20))});
    }
    plan.place();
    std::size_t sum = 0;
    for (const PlannedTensor& a : plan.tensors()) {
      EXPECT_EQ(a.offset % 64, 0U);
      EXPECT_LE(a.offset + a.bytes, plan.total());
      sum += a.bytes;
      for (const PlannedTensor& b : plan.tensors()) {
        EXPECT_TRUE(&a == &b || !a.lifetime.overlaps(b.lifetime) || !share_bytes(a, b))
            << "seed " << seed;
      }
    }
    EXPECT_LT(plan.total(), sum) << "seed " << seed << ": nothing is shared";
  }
}

TEST(MemoryPlan, OneAfterTheOtherNeedsRoomForOne) {
  MemoryPlan plan;
  for (int i = 0; i < 10; ++i) {
    plan.add("tensor", 4096, {i, i});
  }
  plan.place();
  EXPECT_LT(plan.total(), 2 * 4096U);
}

TEST(Arena, TensorsAreZeroAtFirstAndAligned) {
  MemoryPlan plan;
  plan.add("a", 100, {0, 1});
  const TensorId b = plan.add_floats("b", 100, {0, 1});
  plan.place();
  Arena arena(plan);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.at(b)) % 64, 0U);
  EXPECT_EQ(arena.floats(b)[99], 0.0F);
}

}  // namespace
}  // namespace mayfly::nn::cpu
