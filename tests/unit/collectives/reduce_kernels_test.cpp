#include "collectives/plan/reduce_kernels.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace mayfly::collectives {
namespace {

template <typename T>
T reduce_one(T a, T b, DataType type, ReduceOp op) {
  reduce(&a, &b, 1, type, op);
  return a;
}

TEST(Reduce, IntegerSumsWrapAround) {
  constexpr auto kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(reduce_one<std::int32_t>(kMax32, 1, DataType::kInt32, ReduceOp::kSum),
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(reduce_one<std::int64_t>(kMax64, 2, DataType::kInt64, ReduceOp::kSum),
            std::numeric_limits<std::int64_t>::min() + 1);
}

TEST(Reduce, WorksAtEverySize) {
  for (std::size_t n = 0; n < 70; ++n) {
    std::vector<std::int32_t> sum(n + 1, 7);
    std::vector<float> max(n + 1, 1.5F);
    std::vector<std::int32_t> a(n + 1);
    std::vector<float> b(n + 1);
    for (std::size_t i = 0; i <= n; ++i) {
      a[i] = static_cast<std::int32_t>(i) - 20;
      b[i] = static_cast<float>(i) - 20.0F;
    }
    reduce(sum.data(), a.data(), n, DataType::kInt32, ReduceOp::kSum);
    reduce(max.data(), b.data(), n, DataType::kFloat32, ReduceOp::kMax);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(sum[i], 7 + a[i]);
      EXPECT_EQ(max[i], std::max(1.5F, b[i]));
    }
    EXPECT_EQ(sum[n], 7);
    EXPECT_EQ(max[n], 1.5F);
  }
}

TEST(Reduce, TheMaximumOfFloatsHasTheSameBitsInBothOrders) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{0.0F, -0.0F, 1.0F, -1.0F, kInf, -kInf, kNan, -kNan, 1e-45F};
  for (const float a : values) {
    for (const float b : values) {
      const float ab = reduce_one(a, b, DataType::kFloat32, ReduceOp::kMax);
      const float ba = reduce_one(b, a, DataType::kFloat32, ReduceOp::kMax);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(ab), std::bit_cast<std::uint32_t>(ba));
      if (a != a || b != b) {
        EXPECT_NE(ab, ab);
      } else {
        EXPECT_EQ(ab, std::max(a, b));
      }
    }
  }
}

TEST(Reduce, TheMaximumOfIntegersIsSigned) {
  EXPECT_EQ(reduce_one<std::int32_t>(-5, 3, DataType::kInt32, ReduceOp::kMax), 3);
  EXPECT_EQ(reduce_one<std::int64_t>(-5, -9, DataType::kInt64, ReduceOp::kMax), -5);
}

TEST(Reduce, SixteenBitTypesSumAndMaximise) {
  EXPECT_EQ(reduce_one<std::int16_t>(32767, 1, DataType::kInt16, ReduceOp::kSum), -32768);
  EXPECT_EQ(reduce_one<std::int16_t>(-5, 3, DataType::kInt16, ReduceOp::kMax), 3);
  const auto fp16 = [](std::uint16_t a, std::uint16_t b, ReduceOp op) {
    return reduce_one(a, b, DataType::kFloat16, op);
  };
  EXPECT_EQ(fp16(0x3c00, 0x4000, ReduceOp::kSum), 0x4200);  // 1 + 2 = 3
  EXPECT_EQ(fp16(0xbc00, 0xc000, ReduceOp::kMax), 0xbc00);  // -1 above -2
  EXPECT_EQ(fp16(0x8000, 0x0000, ReduceOp::kMax), 0x0000);
  EXPECT_EQ(fp16(0x7c00, 0xfe01, ReduceOp::kMax), 0x7fff);  // any NaN wins
  EXPECT_EQ(reduce_one<std::uint16_t>(0x3f80, 0x4000, DataType::kBFloat16, ReduceOp::kSum), 0x4040);
  EXPECT_EQ(reduce_one<std::uint16_t>(0x7f80, 0x7f81, DataType::kBFloat16, ReduceOp::kMax), 0x7fff);
}

}  // namespace
}  // namespace mayfly::collectives
