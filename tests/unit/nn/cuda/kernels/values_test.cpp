// fp16 of the kernels, on the host: all bit patterns, all numbers at which rounding changes, and a
// comparison with the conversions for the wire, which are separate code.

#include "nn/cuda/kernels/values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.hpp"
#include "collectives/plan/half_floats.hpp"

namespace mayfly::nn::cuda {
namespace {

using on_host::Fp16;

constexpr std::uint16_t kInfinity = 0x7c00;
constexpr std::uint16_t kSign = 0x8000;

std::uint16_t narrow(float x) {
  const std::uint32_t pair = on_host::narrow_pair<Fp16>(x, -0.0F);
  EXPECT_EQ(pair >> 16, kSign) << "of -0";
  return static_cast<std::uint16_t>(pair);
}

/// The value by the definition of IEEE 754, for patterns without a sign.
double value_of(std::uint32_t pattern) {
  const auto fraction = static_cast<double>(pattern & 0x3ffU);
  const int exponent = static_cast<int>(pattern >> 10);
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Fp16, EveryNumberIsWidenedToItsValue) {
  for (std::uint32_t pattern = 0; pattern < 0x8000U; ++pattern) {
    const float wide = on_host::widen(Fp16{static_cast<std::uint16_t>(pattern)});
    const float negative = on_host::widen(Fp16{static_cast<std::uint16_t>(pattern | kSign)});
    if (pattern > kInfinity) {
      ASSERT_TRUE(std::isnan(wide) && std::isnan(negative)) << pattern;
      continue;
    }
    ASSERT_EQ(wide, pattern == kInfinity ? std::numeric_limits<float>::infinity()
                                         : static_cast<float>(value_of(pattern)));
    ASSERT_EQ(negative, -wide);
    ASSERT_TRUE(std::signbit(negative)) << pattern;
  }
}

TEST(Fp16, EveryNumberSurvivesAndWhatLiesBetweenTwoIsRoundedToNearestEven) {
  constexpr float kUp = std::numeric_limits<float>::infinity();
  for (std::uint16_t pattern = 0; pattern < kInfinity; ++pattern) {
    const auto next = static_cast<std::uint16_t>(pattern + 1);
    const float exact = static_cast<float>(value_of(pattern));
    // The number after the largest one would be 2^16.
    const float middle = static_cast<float>((value_of(pattern) + value_of(next)) / 2);
    ASSERT_EQ(narrow(exact), pattern);
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0F)), pattern);
    ASSERT_EQ(narrow(middle), pattern % 2 == 0 ? pattern : next);
    ASSERT_EQ(narrow(std::nextafter(middle, kUp)), next);
    ASSERT_EQ(narrow(-exact), pattern | kSign);
    ASSERT_EQ(narrow(-std::nextafter(middle, kUp)), next | kSign);
  }
}

TEST(Fp16, WhatIsTooLargeIsInfiniteAndANanStaysOne) {
  EXPECT_EQ(narrow(65519.996F), 0x7bff);
  EXPECT_EQ(narrow(65520.0F), kInfinity);
  EXPECT_EQ(narrow(-std::numeric_limits<float>::max()), kInfinity | kSign);
  EXPECT_EQ(narrow(std::numeric_limits<float>::infinity()), kInfinity);
  EXPECT_EQ(narrow(std::numeric_limits<float>::quiet_NaN()), 0x7fff);
  EXPECT_EQ(narrow(on_host::float_of(0xff800001U)), 0x7fff) << "a NaN with few bits";
  EXPECT_EQ(narrow(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Fp16, PatternsOfEveryKindAreNarrowedAsOnTheWire) {
  const CounterRandom random(17);
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    const float x = on_host::float_of(static_cast<std::uint32_t>(random.bits(i)));
    std::uint16_t wire = 0;
    collectives::to_fp16({&x, 1}, {&wire, 1});
    if (std::isnan(x)) {
      ASSERT_EQ(narrow(x), 0x7fff);
    } else {
      ASSERT_EQ(narrow(x), wire) << x;
    }
  }
}

TEST(Fp16, GranulesKeepTheirOrder) {
  on_host::Granule granule;
  for (std::uint32_t k = 0; k < on_host::kGranule; ++k) {
    granule.value[k] = static_cast<float>(k) + 0.1F;
  }
  alignas(16) Fp16 memory[on_host::kGranule];
  on_host::store_granule(granule, memory);
  const on_host::Granule loaded = on_host::load_granule(memory);
  const on_host::Granule rounded = on_host::rounded<Fp16>(granule);
  for (std::uint32_t k = 0; k < on_host::kGranule; ++k) {
    EXPECT_NEAR(loaded.value[k], granule.value[k], 0x1p-9);
    EXPECT_EQ(loaded.value[k], rounded.value[k]);
    EXPECT_EQ(loaded.value[k], on_host::widen(memory[k]));
  }
}

}  // namespace
}  // namespace mayfly::nn::cuda
