// Runs the arithmetic of the CUDA kernels on the CPU, and compares every bit with collectives/plan.

#include "collectives/plan/exact_sum_math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "collectives/plan/exact_sum.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {
namespace {

namespace math = exact_sum_math;

static_assert(math::kLowestExponent == kExponentMin);
static_assert(math::kHighestExponent == kExponentMax);
static_assert(math::kNoExponent == kUnsetExponent);

// Random floats of all exponents, and special values.
std::vector<float> floats_of_all_sizes(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<float> out{0.0F,
                         -0.0F,
                         std::numeric_limits<float>::denorm_min(),
                         -std::numeric_limits<float>::denorm_min(),
                         std::numeric_limits<float>::min(),
                         std::numeric_limits<float>::max(),
                         0.5F,
                         1.5F,
                         2.5F,
                         -0.5F,
                         -1.5F};
  while (out.size() < count) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(x)) {
      out.push_back(x);
    }
  }
  return out;
}

struct Block {
  std::vector<std::int32_t> sums;
  QuantizeResult flags;
  std::int32_t observed = kUnsetExponent;
};

Block as_on_device(std::span<const float> gradient, std::int32_t exponent, int bits,
                   std::vector<std::int32_t> sums) {
  const float scale = math::scale_of(exponent, bits);
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    largest = std::max(largest, math::magnitude(gradient[i]));
    sums[i] = math::add(sums[i], math::quantize(gradient[i], scale));
  }
  return {.sums = std::move(sums),
          .flags = {.overflow = math::overflows(largest, exponent),
                    .nonfinite = math::is_nonfinite(largest)},
          .observed = math::exponent_above(largest)};
}

void expect_same_as_plan(std::span<const float> gradient, std::int32_t exponent, int bits,
                         const std::vector<std::int32_t>& before) {
  Block plan{.sums = before, .flags = {}, .observed = 0};
  plan.flags = quantize_add(gradient, exponent, bits, plan.sums, plan.observed);
  const Block device = as_on_device(gradient, exponent, bits, before);
  EXPECT_EQ(device.flags.overflow, plan.flags.overflow);
  EXPECT_EQ(device.flags.nonfinite, plan.flags.nonfinite);
  EXPECT_EQ(device.observed, plan.observed);
  if (!plan.flags.overflow) {  // after an overflow the sums are unspecified
    EXPECT_EQ(device.sums, plan.sums) << "exponent " << exponent << ", bits " << bits;
  }
}

TEST(ExactSumMath, QuantizesToTheBitsOfThePlanForEveryExponentAndNumberOfBits) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::vector<float> all = floats_of_all_sizes(seed, 20000);
  for (std::int32_t exponent = kUnsetExponent; exponent <= kExponentMax; ++exponent) {
    std::vector<float> fits;
    const float limit =
        exponent >= 128 ? std::numeric_limits<float>::infinity() : std::ldexp(1.0F, exponent);
    std::copy_if(all.begin(), all.end(), std::back_inserter(fits), [&](float x) {
      return exponent == kUnsetExponent ? x == 0.0F : std::fabs(x) < limit;
    });
    fits.resize(std::min<std::size_t>(fits.size(), kBlockElements));
    for (const int bits : {14, 20, 27, 30}) {
      std::vector<std::int32_t> before(fits.size());
      for (std::size_t i = 0; i < before.size(); ++i) {
        before[i] = static_cast<std::int32_t>(i * 1000003U % 2000001U) - 1000000;
      }
      expect_same_as_plan(fits, exponent, bits, before);
    }
  }
}

TEST(ExactSumMath, FlagsAndObservesLikeThePlanAtEveryBorder) {
  for (std::int32_t exponent = kExponentMin; exponent < kExponentMax; ++exponent) {
    const float limit = std::ldexp(1.0F, exponent);
    for (const float x : {limit, -limit, std::nextafter(limit, 0.0F), limit * 1.5F}) {
      const std::vector<float> one{x};
      for (const std::int32_t used : {kUnsetExponent, exponent, exponent + 1}) {
        expect_same_as_plan(one, used, 27, {0});
      }
    }
  }
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    expect_same_as_plan(std::vector<float>{1.0F, bad}, kExponentMax, 27, {0, 0});
  }
}

TEST(ExactSumMath, DequantizesToTheBitsOfThePlan) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::int32_t> sums{0, 1, -1, INT32_MAX, INT32_MIN, 1 << 24, (1 << 24) + 1};
  while (sums.size() < 500) {
    sums.push_back(static_cast<std::int32_t>(random()));
  }
  for (std::int32_t exponent = kUnsetExponent; exponent <= kExponentMax; ++exponent) {
    for (const float scale : {1.0F, 1.0F / 3.0F, 1e-30F, 1e30F, -2.0F}) {
      std::vector<float> plan(sums.size());
      dequantize(sums, exponent, 27, scale, plan);
      const float factor = math::factor_of(exponent, 27, scale);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        EXPECT_EQ(math::pattern_of(math::dequantize(sums[i], factor)), math::pattern_of(plan[i]));
      }
    }
  }
}

TEST(ExactSumMath, OrderedIntegersGiveTheMaximumOfReduce) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<float> a = floats_of_all_sizes(seed, 3000);
  std::vector<float> b = a;
  std::shuffle(b.begin(), b.end(), std::mt19937(seed));
  for (const float special :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
        -std::numeric_limits<float>::infinity(), -0.0F, 0.0F}) {
    a.push_back(special);
    b.push_back(1.0F);
    a.push_back(-0.0F);
    b.push_back(special);
  }
  std::vector<float> expected = a;
  reduce(expected.data(), b.data(), b.size(), DataType::kFloat32, ReduceOp::kMax);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::int32_t larger = std::max(math::ordered(std::bit_cast<std::int32_t>(a[i])),
                                         math::ordered(std::bit_cast<std::int32_t>(b[i])));
    EXPECT_EQ(std::bit_cast<std::int32_t>(expected[i]), math::from_ordered(larger)) << a[i];
  }
}

}  // namespace
}  // namespace mayfly::collectives
