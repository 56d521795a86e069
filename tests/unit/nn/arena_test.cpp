#include "nn/cpu/arena.hpp"

#include <gtest/gtest.h>

namespace mayfly::nn::cpu {
namespace {

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
