#include "nn/memory_plan.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"

namespace mayfly::nn {
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

/// Without alignment and stagger, a single byte decides whether a tensor fits.
constexpr Placement kBytes{.alignment = 1, .stagger = 0};

TEST(MemoryPlan, ATensorGoesIntoTheFirstGapThatIsLargeEnough) {
  for (const std::size_t bytes : {39U, 40U, 41U}) {
    MemoryPlan plan(kBytes);
    const TensorId early = plan.add("before the gap", 60, {0, 1});
    const TensorId wide = plan.add("where the gap is, earlier", 100, {2, 3});
    const TensorId late = plan.add("behind the gap", 50, {1, 3});
    const TensorId small = plan.add("to be placed", bytes, {1, 1});
    plan.place();
    const auto offset = [&](TensorId id) { return plan.tensors()[std::size_t(id)].offset; };
    ASSERT_EQ(offset(early), 0U);
    ASSERT_EQ(offset(wide), 0U);
    ASSERT_EQ(offset(late), 100U);
    EXPECT_EQ(offset(small), bytes <= 40 ? 60U : 150U) << bytes;
    EXPECT_EQ(plan.total(), bytes <= 40 ? 150U : 150U + bytes);
  }
}

TEST(MemoryPlan, BothEndsOfALifetimeBelongToIt) {
  MemoryPlan plan(kBytes);
  plan.add("first", 100, {0, 2});
  plan.add("second", 90, {2, 3});
  plan.add("third", 80, {3, 5});
  plan.place();
  EXPECT_EQ(plan.tensors()[1].offset, 100U);
  EXPECT_EQ(plan.tensors()[2].offset, 0U);
  EXPECT_EQ(plan.total(), 190U);
}

TEST(MemoryPlan, RoundsUpToWholeLinesAndAddsTheBytesBetween) {
  MemoryPlan plan({.alignment = 64, .stagger = 128});
  plan.add("a line", 64, {0, 0});
  plan.add("a byte more", 65, {0, 0});
  plan.add("nothing", 0, {0, 0});
  plan.add_floats("floats", 16, {0, 0});
  EXPECT_EQ(plan.tensors()[0].bytes, 64U + 128);
  EXPECT_EQ(plan.tensors()[1].bytes, 128U + 128);
  EXPECT_EQ(plan.tensors()[2].bytes, 128U);
  EXPECT_EQ(plan.tensors()[3].bytes, 64U + 128);
}

TEST(Arena, OneThatTheHostCannotHoldIsRefusedBeforeAnyOfItIsTaken) {
  MemoryPlan plan;
  plan.add("more than any host has", std::size_t{1} << 50, {0, 1});
  plan.place();
  try {
    const Arena arena(plan);
    FAIL() << "it was made";
  } catch (const TooLittleMemory& error) {
    EXPECT_GE(error.needed, std::uint64_t{1} << 50);
    EXPECT_LT(error.usable, error.needed);
  }
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
}  // namespace mayfly::nn
