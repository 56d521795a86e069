#include "base/usable_memory.hpp"

#include <gtest/gtest.h>

namespace mayfly {
namespace {

TEST(UsableMemory, IsSomeAndNotMoreThanAnyMachineHas) {
  EXPECT_GT(usable_memory(), std::uint64_t{1} << 20);
  EXPECT_LT(usable_memory(), std::uint64_t{1} << 50) << "the kernel says it";
}

std::uint64_t hundred() {
  return 100;
}

std::uint64_t seventy() {
  return 70;
}

TEST(MemoryClaim, ClaimsThatOverlapShareWhatWasUsableBefore) {
  {
    const MemoryClaim first(60, hundred);
    EXPECT_TRUE(first.fits());
    const MemoryClaim second(41, seventy);  // some bytes of the first claim are already in use
    EXPECT_FALSE(second.fits());
    EXPECT_EQ(second.usable(), 100U);
    EXPECT_TRUE(MemoryClaim(40, seventy).fits()) << "what did not fit is not taken";
    EXPECT_FALSE(MemoryClaim(1, seventy).fits()) << "what was taken before the last claim goes";
  }
  EXPECT_TRUE(MemoryClaim(70, seventy).fits());
  EXPECT_FALSE(MemoryClaim(71, seventy).fits());
}

}  // namespace
}  // namespace mayfly
