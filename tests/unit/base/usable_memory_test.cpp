#include "base/usable_memory.hpp"

#include <gtest/gtest.h>

namespace mayfly {
namespace {

TEST(UsableMemory, IsSomeAndNotMoreThanAnyMachineHas) {
  EXPECT_GT(usable_memory(), std::uint64_t{1} << 20);
  EXPECT_LT(usable_memory(), std::uint64_t{1} << 50) << "the kernel says it";
}

}  // namespace
}  // namespace mayfly
