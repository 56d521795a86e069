#include "collectives/plan/half_floats.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.hpp"

namespace mayfly::collectives {
namespace {

// The value of a 16-bit pattern by its definition: sign, exponent bits, mantissa bits, bias.
double value_of(std::uint16_t pattern, int mantissa_bits, int bias) {
  const int exponent_bits = 15 - mantissa_bits;
  const double sign = (pattern & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = (pattern & 0x7fffU) >> mantissa_bits;
  const int mantissa = pattern & ((1U << mantissa_bits) - 1U);
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) {
    return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  }
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  const char* name;
  int mantissa_bits;
  int bias;
  void (*narrow)(std::span<const float>, std::span<std::uint16_t>);
  void (*widen)(std::span<const std::uint16_t>, std::span<float>);
  void (*add)(std::span<std::uint16_t>, std::span<const std::uint16_t>);
};

class HalfFloats : public testing::TestWithParam<Format> {
 protected:
  static std::vector<std::uint16_t> all_patterns() {
    std::vector<std::uint16_t> patterns(65536);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      patterns[i] = static_cast<std::uint16_t>(i);
    }
    return patterns;
  }
  static double exact(std::uint16_t pattern) {
    return value_of(pattern, GetParam().mantissa_bits, GetParam().bias);
  }
  static std::uint16_t narrow(float value) {
    std::uint16_t out = 0;
    GetParam().narrow(std::span(&value, 1), std::span(&out, 1));
    return out;
  }
};

TEST_P(HalfFloats, EveryPatternHasItsValueAndComesBack) {
  const std::vector<std::uint16_t> patterns = all_patterns();
  std::vector<float> wide(patterns.size());
  std::vector<std::uint16_t> back(patterns.size());
  GetParam().widen(patterns, wide);
  GetParam().narrow(wide, back);
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const double expected = exact(patterns[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide[i]));
      EXPECT_TRUE(std::isnan(exact(back[i])));
    } else {
      ASSERT_EQ(static_cast<double>(wide[i]), expected) << "pattern " << i;
      ASSERT_EQ(back[i], patterns[i]);
    }
  }
}

TEST_P(HalfFloats, RoundsToTheNearestAndTiesToEven) {
  // The middle between two neighbours is rounded to the even one, and the floats beside the middle
  // to the nearer one.
  const std::uint16_t infinity =
      static_cast<std::uint16_t>(0x7fffU & ~((1U << GetParam().mantissa_bits) - 1U));
  for (std::uint16_t low = 0; low + 1 < infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const auto middle = static_cast<float>((exact(low) + exact(high)) / 2);
    ASSERT_EQ(narrow(middle), low % 2 == 0 ? low : high);
    ASSERT_EQ(narrow(-middle), (low % 2 == 0 ? low : high) | 0x8000U);
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0F)), low);
    ASSERT_EQ(narrow(std::nextafter(middle, std::numeric_limits<float>::max())), high);
  }
  EXPECT_EQ(narrow(std::numeric_limits<float>::max()), infinity);
  EXPECT_EQ(narrow(-std::numeric_limits<float>::infinity()), infinity | 0x8000U);
}

TEST_P(HalfFloats, SumsAreRoundedFp32SumsAtEverySize) {
  for (const std::size_t count : {0, 1, 7, 16, 33, 1000}) {
    std::vector<float> a(count);
    std::vector<float> b(count);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = static_cast<float>(static_cast<std::int64_t>(mix64(i) % 20001) - 10000) / 512.0F;
      b[i] = static_cast<float>(static_cast<std::int64_t>(mix64(i + 77) % 20001) - 10000) / 64.0F;
    }
    std::vector<std::uint16_t> sum(count);
    std::vector<std::uint16_t> other(count);
    GetParam().narrow(a, sum);
    GetParam().narrow(b, other);
    std::vector<std::uint16_t> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = narrow(static_cast<float>(exact(sum[i])) + static_cast<float>(exact(other[i])));
    }
    GetParam().add(sum, other);
    EXPECT_EQ(sum, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfFloats,
                         testing::Values(Format{"fp16", 10, 15, to_fp16, from_fp16, add_fp16},
                                         Format{"bf16", 7, 127, to_bf16, from_bf16, add_bf16}),
                         [](const auto& format) { return std::string(format.param.name); });

}  // namespace
}  // namespace mayfly::collectives
