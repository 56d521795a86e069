#include "base/aligned_buffer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace mayfly {
namespace {

std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

TEST(AlignedBuffer, IsZeroedAndAlignedToACacheLine) {
  const AlignedBuffer<float> buffer(1000);
  EXPECT_EQ(address_of(buffer.data()) % 64, 0u);
  EXPECT_TRUE(std::all_of(buffer.span().begin(), buffer.span().end(),
                          [](float element) { return element == 0.0F; }));
}

TEST(AlignedBuffer, OfTwoMebibytesAndMoreIsAlignedToHugePages) {
  const std::size_t huge = std::size_t{2} << 20;
  const AlignedBuffer<std::uint8_t> buffer(huge + 1);
  EXPECT_EQ(address_of(buffer.data()) % huge, 0u);
  EXPECT_EQ(buffer[huge], 0);
}

TEST(AlignedBuffer, MovesItsMemory) {
  AlignedBuffer<int> first(3);
  first[2] = 7;
  AlignedBuffer<int> second(std::move(first));
  EXPECT_EQ(second.size(), 3u);
  EXPECT_EQ(second[2], 7);
  AlignedBuffer<int> third;
  third = std::move(second);
  EXPECT_EQ(third[2], 7);
}

TEST(AlignedBuffer, MayBeEmpty) {
  const AlignedBuffer<int> none;
  EXPECT_TRUE(none.span().empty());
  const AlignedBuffer<int> zero(0);
  EXPECT_TRUE(zero.span().empty());
}

}  // namespace
}  // namespace mayfly
