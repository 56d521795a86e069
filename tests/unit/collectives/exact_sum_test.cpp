#include "collectives/plan/exact_sum.hpp"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace mayfly::collectives {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kQuietNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormMin = std::numeric_limits<float>::denorm_min();

// A random vector like a gradient, with heavy tails.
std::vector<float> random_gradient(std::mt19937& random, std::size_t size, double scale) {
  std::normal_distribution<double> normal;
  std::vector<float> out(size);
  for (float& x : out) {
    const double z = normal(random);
    x = static_cast<float>(scale * z * std::fabs(z));
  }
  return out;
}

std::int32_t observe(std::span<const float> gradient) {
  std::vector<std::int32_t> scratch(gradient.size());
  std::int32_t observed = 0;
  (void)quantize_add(gradient, kExponentMax, 20, scratch, observed);
  return observed;
}

TEST(BlockLayout, BlocksTileEveryTensorWithoutCrossingItsBorder) {
  const BlockLayout layout({1, 1024, 1025, 0, 3000, 10});
  const std::vector<std::size_t> sizes{1, 1024, 1024, 1, 1024, 1024, 952, 10};
  ASSERT_EQ(layout.block_count(), sizes.size());
  std::size_t offset = 0;
  for (std::size_t b = 0; b < sizes.size(); ++b) {
    EXPECT_EQ(layout.offset(b), offset);
    EXPECT_EQ(layout.size(b), sizes[b]);
    offset += sizes[b];
  }
  EXPECT_EQ(layout.element_count(), 5060U);
  EXPECT_EQ(layout.first_block_at(0), 0U);
  EXPECT_EQ(layout.first_block_at(1025), 2U);
  EXPECT_EQ(layout.first_block_at(5050), 7U);
  EXPECT_EQ(layout.first_block_at(5060), 8U);
}

TEST(BlockLayout, IsEmptyForNoTensors) {
  const BlockLayout layout({});
  EXPECT_EQ(layout.block_count(), 0U);
  EXPECT_EQ(layout.element_count(), 0U);
  EXPECT_EQ(layout.first_block_at(0), 0U);
}

TEST(MagnitudeBits, LeaveRoomForTheSumOfAllMicrobatches) {
  EXPECT_EQ(magnitude_bits(1), 30);
  EXPECT_EQ(magnitude_bits(2), 29);
  EXPECT_EQ(magnitude_bits(3), 28);
  EXPECT_EQ(magnitude_bits(8), 27);
  EXPECT_EQ(magnitude_bits(kMicrobatchesMax), 14);
  for (std::uint32_t m = 1; m <= 1000; ++m) {
    EXPECT_LE(std::int64_t{m} << magnitude_bits(m), std::int64_t{1} << 30);
  }
}

// Goal: the largest sum without an overflow flag does not wrap. Method: every microbatch is the
// largest float below 2^e.
TEST(QuantizeAdd, TheLargestSumOfCleanMicrobatchesFitsInt32) {
  for (const std::uint32_t m : {1U, 2U, 3U, 7U, 8U, 64U, 1000U}) {
    const float largest = std::nextafter(8.0F, 0.0F);
    const std::vector<float> gradient{largest, -largest};
    std::vector<std::int32_t> acc(2);
    std::int64_t reference = 0;
    for (std::uint32_t i = 0; i < m; ++i) {
      std::int32_t observed = 0;
      const QuantizeResult result = quantize_add(gradient, 3, magnitude_bits(m), acc, observed);
      EXPECT_FALSE(result.overflow);
      EXPECT_EQ(observed, 3);
      reference += std::llrint(std::ldexp(static_cast<double>(largest), magnitude_bits(m) - 3));
    }
    EXPECT_EQ(acc[0], reference);
    EXPECT_EQ(acc[1], -reference);
  }
}

TEST(QuantizeAdd, OverflowsExactlyFromTwoToTheExponent) {
  for (const std::int32_t e : {kExponentMin, -20, 0, 1, 17, 127}) {
    const float limit = std::ldexp(1.0F, e);
    for (const float sign : {1.0F, -1.0F}) {
      std::vector<std::int32_t> acc(1);
      std::int32_t observed = 0;
      const std::vector<float> below{sign * std::nextafter(limit, 0.0F)};
      EXPECT_FALSE(quantize_add(below, e, 27, acc, observed).overflow);
      EXPECT_EQ(observed, e);
      const std::vector<float> at{sign * limit};
      EXPECT_TRUE(quantize_add(at, e, 27, acc, observed).overflow);
      EXPECT_EQ(observed, e + 1);
    }
  }
  std::vector<std::int32_t> acc(1);
  std::int32_t observed = 0;
  const std::vector<float> max{std::numeric_limits<float>::max()};
  EXPECT_FALSE(quantize_add(max, kExponentMax, 27, acc, observed).overflow);
  EXPECT_EQ(observed, kExponentMax);
}

TEST(QuantizeAdd, AnUnsetExponentOverflowsOnAnythingButZeros) {
  std::vector<std::int32_t> acc(2, 5);
  std::int32_t observed = 0;
  const std::vector<float> zeros{0.0F, -0.0F};
  EXPECT_FALSE(quantize_add(zeros, kUnsetExponent, 27, acc, observed).overflow);
  EXPECT_EQ(observed, kUnsetExponent);
  EXPECT_EQ(acc, (std::vector<std::int32_t>{5, 5}));
  const std::vector<float> tiny{0.0F, -kDenormMin};
  EXPECT_TRUE(quantize_add(tiny, kUnsetExponent, 27, acc, observed).overflow);
  EXPECT_EQ(observed, kExponentMin);
}

TEST(QuantizeAdd, ValuesBelowTheSmallestExponentBecomeZero) {
  std::vector<std::int32_t> acc(3);
  std::int32_t observed = 0;
  const std::vector<float> tiny{kDenormMin, -std::numeric_limits<float>::min(),
                                std::ldexp(-1.0F, kExponentMin - 40)};
  EXPECT_FALSE(quantize_add(tiny, kExponentMin, 30, acc, observed).overflow);
  EXPECT_EQ(acc, std::vector<std::int32_t>(3));
}

TEST(QuantizeAdd, ReportsInfinitiesAndNansWhereverTheyAre) {
  for (const float bad : {kInfinity, -kInfinity, kQuietNan, -kQuietNan}) {
    for (std::size_t at = 0; at < 37; ++at) {
      std::vector<float> gradient(37, 0.5F);
      gradient[at] = bad;
      std::vector<std::int32_t> acc(37);
      std::int32_t observed = 0;
      const QuantizeResult result = quantize_add(gradient, kExponentMax, 27, acc, observed);
      EXPECT_TRUE(result.nonfinite);
      EXPECT_TRUE(result.overflow);
      EXPECT_EQ(observed, kExponentMax);
    }
  }
}

TEST(QuantizeAdd, RoundsHalvesToEven) {
  const std::vector<float> gradient{0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 1.25F, -3.75F};
  std::vector<std::int32_t> acc(gradient.size());
  std::int32_t observed = 0;
  (void)quantize_add(gradient, 20, 20, acc, observed);
  EXPECT_EQ(acc, (std::vector<std::int32_t>{0, 2, 2, 0, -2, -2, 1, -4}));
}

TEST(QuantizeAdd, TheSumHasTheSameBitsInAnyOrder) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::uint32_t kMicrobatches = 16;
  std::vector<std::vector<float>> gradients;
  std::int32_t exponent = kUnsetExponent;
  for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
    gradients.push_back(random_gradient(random, 777, 1e-3));
    exponent = std::max(exponent, observe(gradients.back()));
  }
  const int bits = magnitude_bits(kMicrobatches);
  std::vector<std::int32_t> expected(777);
  std::int32_t observed = 0;
  for (const auto& g : gradients) {
    ASSERT_FALSE(quantize_add(g, exponent, bits, expected, observed).overflow);
  }
  for (int round = 0; round < 20; ++round) {
    std::shuffle(gradients.begin(), gradients.end(), random);
    // The microbatches are split at random into two workers' sums, which are added as in a ring.
    const std::size_t cut = random() % (kMicrobatches + 1);
    std::vector<std::int32_t> left(777);
    std::vector<std::int32_t> right(777);
    for (std::size_t m = 0; m < kMicrobatches; ++m) {
      (void)quantize_add(gradients[m], exponent, bits, m < cut ? left : right, observed);
    }
    for (std::size_t i = 0; i < left.size(); ++i) {
      left[i] += right[i];
    }
    EXPECT_EQ(left, expected);
  }
}

TEST(ExactSum, ErrorAgainstDoublesIsMillionths) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const double scale : {1e-9, 1e-3, 1.0, 1e6}) {
    for (const std::uint32_t microbatches : {1U, 8U, 64U}) {
      std::vector<std::vector<float>> gradients;
      std::int32_t largest = kUnsetExponent;
      for (std::uint32_t m = 0; m < microbatches; ++m) {
        gradients.push_back(random_gradient(random, kBlockElements, scale));
        largest = std::max(largest, observe(gradients.back()));
      }
      const std::int32_t exponent = next_exponent(kUnsetExponent, largest, Decay::kNo);
      const int bits = magnitude_bits(microbatches);
      std::vector<std::int32_t> acc(kBlockElements);
      std::vector<double> exact(kBlockElements);
      for (const auto& g : gradients) {
        std::int32_t observed = 0;
        ASSERT_FALSE(quantize_add(g, exponent, bits, acc, observed).overflow);
        std::transform(g.begin(), g.end(), exact.begin(), exact.begin(),
                       [](float x, double sum) { return sum + static_cast<double>(x); });
      }
      std::vector<float> out(kBlockElements);
      dequantize(acc, exponent, bits, 1.0F, out);
      double error = 0;
      double norm = 0;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const double difference = static_cast<double>(out[i]) - exact[i];
        error += difference * difference;
        norm += exact[i] * exact[i];
      }
      // Each value is rounded by up to half a step of the grid. If these errors are evenly
      // distributed, their root mean square is 1/sqrt(12) of a step, which varies by 2 % over 1024
      // elements. In addition, the result is rounded to a float. Relative to the sum, the error is
      // 5e-6 for 64 microbatches and 6e-7 for eight. It is twice that for about one seed in some
      // hundreds, whose largest value is above the next power of two, so that the grid is coarser.
      const double step = std::ldexp(1.0, exponent - bits);
      const double of_grid = step * std::sqrt(microbatches * kBlockElements / 12.0);
      const double of_float = std::numeric_limits<float>::epsilon() * std::sqrt(norm);
      EXPECT_LE(std::sqrt(error), 1.15 * of_grid + of_float)
          << microbatches << " microbatches at " << scale;
    }
  }
}

TEST(Dequantize, IsTheRoundedIntegerTimesTheRoundedFactor) {
  const std::vector<std::int32_t> sum{0, 1, -1, 16777217, -16777219, 1 << 30, -(1 << 30), 12345};
  for (const std::int32_t exponent : {-60, -3, 0, 5}) {
    for (const float scale : {1.0F, 1.0F / 3.0F, 1.0F / 128.0F}) {
      std::vector<float> out(sum.size());
      dequantize(sum, exponent, 27, scale, out);
      const float factor = std::ldexp(1.0F, exponent - 27) * scale;
      for (std::size_t i = 0; i < sum.size(); ++i) {
        EXPECT_EQ(out[i], static_cast<float>(sum[i]) * factor);
      }
    }
  }
}

TEST(Dequantize, GivesZerosForAnUnsetBlock) {
  const std::vector<std::int32_t> sum(5);
  std::vector<float> out(5, 1.0F);
  dequantize(sum, kUnsetExponent, 30, 1.0F / 1024, out);
  EXPECT_EQ(out, std::vector<float>(5));
}

TEST(NextExponent, LeavesHeadroomGrowsAtOnceAndDecaysSlowly) {
  for (const Decay decay : {Decay::kNo, Decay::kByOne}) {
    EXPECT_EQ(next_exponent(kUnsetExponent, 3, decay), 3 + kHeadroomBits);
    EXPECT_EQ(next_exponent(5, 9, decay), 9 + kHeadroomBits);
    EXPECT_EQ(next_exponent(5, 5 - kHeadroomBits, decay), 5);
    EXPECT_EQ(next_exponent(kUnsetExponent, kUnsetExponent, decay), kUnsetExponent);
    EXPECT_EQ(next_exponent(kExponentMax, kExponentMax, decay), kExponentMax);
  }
  for (const std::int32_t observed : {-40, kUnsetExponent}) {
    EXPECT_EQ(next_exponent(5, observed, Decay::kByOne), 4);
    EXPECT_EQ(next_exponent(5, observed, Decay::kNo), 5);
  }
}

TEST(NextExponent, FallsInEveryEighthStep) {
  std::int32_t exponent = 20;
  for (std::uint64_t step = 1; step <= 4 * kDecayInterval; ++step) {
    exponent = next_exponent(exponent, -40, decay_after(step));
  }
  EXPECT_EQ(exponent, 16);
}

// ---- every instruction set ----

// The specified results of quantize_add and dequantize, computed one element at a time.
struct Reference {
  std::vector<std::int32_t> acc;
  std::vector<float> out;
  std::int32_t observed = kUnsetExponent;
};

Reference reference_of(std::span<const float> gradient, std::int32_t exponent, int bits) {
  Reference r;
  for (const float g : gradient) {
    const double scaled = std::ldexp(static_cast<double>(g), bits - exponent);
    r.acc.push_back(static_cast<std::int32_t>(std::nearbyint(scaled)));
    r.out.push_back(static_cast<float>(r.acc.back()) * std::ldexp(1.0F, exponent - bits) / 128.0F);
    if (g != 0.0F) {
      int e = 0;
      (void)std::frexp(g, &e);
      r.observed = std::max({r.observed, e, kExponentMin});
    }
  }
  return r;
}

class EveryTarget : public testing::Test {
 protected:
  ~EveryTarget() override { use(0); }
  // Makes Highway choose among `targets` only; 0 restores the default.
  static void use(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  }
};

TEST_F(EveryTarget, GivesTheBitsOfTheScalarReferenceAtEverySize) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::size_t> sizes{1023, 1024};
  for (std::size_t n = 0; n < 70; ++n) {
    sizes.push_back(n);
  }
  use(0);
  const std::int64_t supported = hwy::SupportedTargets();
  for (std::int64_t left = supported; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    use(target);
    for (const std::size_t n : sizes) {
      const std::vector<float> gradient = random_gradient(random, n, 0.02);
      const std::int32_t exponent = observe(gradient);
      const std::int32_t used = exponent == kUnsetExponent ? 0 : exponent;
      const Reference expected = reference_of(gradient, used, 27);
      std::vector<std::int32_t> acc(n);
      std::int32_t observed = 0;
      EXPECT_FALSE(quantize_add(gradient, used, 27, acc, observed).overflow);
      EXPECT_EQ(observed, expected.observed);
      EXPECT_EQ(acc, expected.acc) << "target " << target << " size " << n;
      std::vector<float> out(n);
      dequantize(acc, used, 27, 1.0F / 128.0F, out);
      EXPECT_EQ(out, expected.out) << "target " << target << " size " << n;
    }
  }
}

}  // namespace
}  // namespace mayfly::collectives
