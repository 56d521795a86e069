#include "collectives/plan/wrapped_sum.hpp"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace mayfly::collectives {
namespace {

constexpr std::uint32_t kMicrobatches = 8;
const int kBits = magnitude_bits(kMicrobatches);

std::vector<float> random_gradient(std::uint32_t seed, std::size_t size, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(size);
  for (float& x : out) {
    x = scale * normal(random);
  }
  return out;
}

QuantizeResult add(std::span<const float> gradient, std::int32_t exponent, std::uint32_t microbatch,
                   std::span<std::int32_t> acc, std::uint64_t step = 1) {
  std::int32_t observed = 0;
  return round_add(gradient, exponent, kBits, rounding_key(1, step, microbatch), 4096,
                   Accumulate::kAdd, acc, observed);
}

/// The wrapped sum of the workers' packed blocks, and the sum of their checks.
struct Reduced {
  std::vector<std::int16_t> total;
  BlockCheck check;
};
Reduced reduce(const std::vector<std::vector<std::int32_t>>& workers) {
  Reduced reduced;
  reduced.total.resize(workers[0].size());
  for (const std::vector<std::int32_t>& sums : workers) {
    std::vector<std::int16_t> wire(sums.size());
    const BlockCheck check = pack_wrapped(sums, wire);
    reduced.check.linear += check.linear;
    reduced.check.mixed += check.mixed;
    for (std::size_t i = 0; i < wire.size(); ++i) {
      reduced.total[i] = static_cast<std::int16_t>(static_cast<std::uint16_t>(reduced.total[i]) +
                                                   static_cast<std::uint16_t>(wire[i]));
    }
  }
  return reduced;
}

TEST(RoundAdd, TheSumDoesNotDependOnWhoAddsWhat) {
  constexpr std::size_t kSize = 1000;  // no multiple of 16, the lanes of AVX-512
  std::vector<std::int32_t> alone(kSize);
  std::vector<std::vector<std::int32_t>> workers(3, std::vector<std::int32_t>(kSize));
  for (std::uint32_t m = 0; m < kMicrobatches; ++m) {
    const std::vector<float> gradient = random_gradient(m, kSize, 0.1F);
    EXPECT_FALSE(add(gradient, 1, m, alone).overflow);
  }
  for (std::uint32_t m = kMicrobatches; m-- > 0;) {
    const std::vector<float> gradient = random_gradient(m, kSize, 0.1F);
    EXPECT_FALSE(add(gradient, 1, m, workers[m % 3]).overflow);
  }
  const Reduced one = reduce({alone});
  const Reduced three = reduce(workers);
  EXPECT_EQ(one.total, three.total);
  EXPECT_EQ(one.check, three.check);
  EXPECT_EQ(inspect_wrapped(three.total).check, three.check);
}

TEST(RoundAdd, IsWithoutBias) {
  // Method: 40000 draws for each of several fractions of a unit; the mean may differ by five sigma.
  constexpr std::uint32_t kDraws = 40000;
  for (const float fraction : {0.01F, 0.25F, 0.5F, 0.9F, 7.3F, -0.3F, -2.75F}) {
    const std::vector<float> gradient(64, std::ldexp(fraction, -kWrappedBits));
    std::vector<std::int32_t> acc(gradient.size());
    for (std::uint32_t m = 0; m < kDraws / 64; ++m) {
      EXPECT_FALSE(add(gradient, 0, m, acc).overflow);
    }
    const double mean = std::accumulate(acc.begin(), acc.end(), 0.0) / kDraws;
    const double remainder = fraction - std::floor(fraction);
    const double sigma = std::sqrt(remainder * (1 - remainder) / kDraws);
    EXPECT_NEAR(mean, fraction, 5 * sigma) << fraction;
  }
}

TEST(RoundAdd, WholeUnitsStayWhole) {
  const std::vector<float> gradient = {std::ldexp(3.0F, -kWrappedBits),
                                       std::ldexp(-5.0F, -kWrappedBits), 0.0F, -0.0F};
  for (std::uint32_t m = 0; m < 50; ++m) {
    std::vector<std::int32_t> acc(gradient.size());
    EXPECT_FALSE(add(gradient, 0, m, acc).overflow);
    EXPECT_EQ(acc, (std::vector<std::int32_t>{3, -5, 0, 0}));
  }
}

TEST(RoundAdd, DrawsDifferBetweenStepsMicrobatchesAndElements) {
  const std::vector<float> gradient(512, std::ldexp(0.5F, -kWrappedBits));
  const auto draws = [&](std::uint64_t step, std::uint32_t microbatch) {
    std::vector<std::int32_t> acc(gradient.size());
    (void)add(gradient, 0, microbatch, acc, step);
    return acc;
  };
  const auto differing = [](const auto& a, const auto& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0, std::plus<>(),
                              [](int x, int y) { return x != y ? 1 : 0; });
  };
  EXPECT_EQ(draws(3, 2), draws(3, 2));
  for (const auto& other : {draws(4, 2), draws(3, 3)}) {
    EXPECT_NEAR(differing(draws(3, 2), other), 256, 60);
  }
  const auto one = draws(3, 2);
  EXPECT_NEAR(std::accumulate(one.begin(), one.end(), 0), 256, 60);
}

TEST(RoundAdd, StoringForgetsWhatWasThere) {
  const std::vector<float> gradient = random_gradient(1, 100, 0.1F);
  std::vector<std::int32_t> zero(100);
  std::vector<std::int32_t> old(100, 12345);
  std::int32_t observed = 0;
  const RoundingKey key = rounding_key(1, 1, 0);
  (void)round_add(gradient, 1, kBits, key, 0, Accumulate::kAdd, zero, observed);
  (void)round_add(gradient, 1, kBits, key, 0, Accumulate::kStore, old, observed);
  EXPECT_EQ(zero, old);
}

TEST(RoundAdd, FlagsWhatInt32CouldNotHold) {
  std::vector<std::int32_t> acc(1);
  const std::int32_t exponent = -3;
  const float limit = std::ldexp(1.0F, exponent - kWrappedBits + kBits);
  EXPECT_FALSE(add(std::vector<float>{std::nextafter(limit, 0.0F)}, exponent, 0, acc).overflow);
  EXPECT_TRUE(add(std::vector<float>{limit}, exponent, 0, acc).overflow);
  EXPECT_TRUE(add(std::vector<float>{-limit}, exponent, 0, acc).overflow);
  EXPECT_TRUE(add(std::vector<float>{1e-30F}, kUnsetExponent, 0, acc).overflow);
  EXPECT_FALSE(add(std::vector<float>{0.0F}, kUnsetExponent, 0, acc).overflow);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(add(std::vector<float>{nan}, exponent, 0, acc).nonfinite);
}

TEST(RoundAdd, TheExchangedMaximumTellsWhetherSomebodyOverflowed) {
  for (const std::int32_t exponent : {-91, -90, -20, 0, 100, 128}) {
    for (int power = -126; power < 128; ++power) {
      const std::vector<float> gradient = {std::ldexp(1.5F, power)};
      std::vector<std::int32_t> acc(1);
      std::int32_t observed = 0;
      const bool overflow =
          round_add(gradient, exponent, kBits, {}, 0, Accumulate::kAdd, acc, observed).overflow;
      EXPECT_EQ(too_large_to_round(observed, exponent, kBits), overflow)
          << exponent << " " << power;
    }
  }
}

TEST(WrappedSum, PartialSumsMayLeaveTheRangeIfTheTotalDoesNot) {
  const Reduced reduced = reduce({{30000, -7}, {30000, 3}, {-32000, -1}});
  EXPECT_EQ(reduced.total, (std::vector<std::int16_t>{28000, -5}));
  EXPECT_EQ(inspect_wrapped(reduced.total).check, reduced.check);
  EXPECT_EQ(inspect_wrapped(reduced.total).largest, 28000U);
}

TEST(WrappedSum, ATotalOutOfRangeIsFoundOutWhereverItIs) {
  for (const std::int32_t total : {32768, -32769, 65536, -65536, 1 << 20}) {
    for (std::size_t at = 0; at < kBlockElements; at += 31) {
      std::vector<std::int32_t> sums(kBlockElements, 5);
      sums[at] = total;
      const Reduced reduced = reduce({sums});
      EXPECT_NE(inspect_wrapped(reduced.total).check, reduced.check) << total << " at " << at;
    }
  }
}

TEST(WrappedSum, TwoElementsOutOfRangeDoNotHideEachOther) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::int32_t> sums(kBlockElements);
    const std::size_t a = random() % kBlockElements;
    const std::size_t b = (a + 1 + random() % (kBlockElements - 1)) % kBlockElements;
    sums[a] = 40000;
    sums[b] = (random() & 1U) != 0 ? 40000 : -40000;
    const Reduced reduced = reduce({sums});
    ASSERT_NE(inspect_wrapped(reduced.total).check, reduced.check) << a << " " << b;
  }
}

TEST(WrappedSum, TheLimitsOfTheRangeFit) {
  const Reduced reduced = reduce({{32767, -32768}});
  EXPECT_EQ(inspect_wrapped(reduced.total).check, reduced.check);
  EXPECT_EQ(inspect_wrapped(reduced.total).largest, 32768U);
}

TEST(WrappedSum, ASafeExponentHoldsAnyTotal) {
  for (const std::uint32_t microbatches : {1U, 2U, 3U, 8U, 1000U, 32769U, kMicrobatchesMax}) {
    const float largest = std::nextafter(std::ldexp(1.0F, -5), 0.0F);
    const std::int32_t exponent = safe_exponent(-5, microbatches);
    std::vector<std::int32_t> acc(1);
    std::int32_t observed = 0;
    for (std::uint32_t m = 0; m < microbatches; ++m) {
      const QuantizeResult result =
          round_add(std::vector<float>{largest}, exponent, magnitude_bits(microbatches),
                    rounding_key(1, 1, m), 0, Accumulate::kAdd, acc, observed);
      ASSERT_FALSE(result.overflow) << microbatches;
    }
    EXPECT_EQ(observed, -5);
    EXPECT_LE(acc[0], 32767) << microbatches;
  }
}

TEST(WrappedSum, TheObservedExponentIsJustAboveTheTotal) {
  EXPECT_EQ(observed_total(0, 3), kUnsetExponent);
  EXPECT_EQ(observed_total(32768, 3), 4);
  EXPECT_EQ(observed_total(32767, 3), 3);
  EXPECT_EQ(observed_total(16383, 3), 2);
  EXPECT_EQ(observed_total(1, 3), 3 - 14);
  EXPECT_EQ(observed_total(1, kExponentMin), kExponentMin) << "not below the smallest";
}

TEST(WrappedSum, DequantizesToUnitsTimesScale) {
  const std::vector<std::int16_t> total = {0, 1, -1, 32767, -32768, 100, 7, 8, 9};
  std::vector<float> out(total.size());
  dequantize_wrapped(total, 2, 0.125F, out);
  for (std::size_t i = 0; i < total.size(); ++i) {
    EXPECT_EQ(out[i], std::ldexp(static_cast<float>(total[i]), 2 - kWrappedBits) * 0.125F);
  }
}

class WrappedSumEveryTarget : public testing::Test {
 protected:
  ~WrappedSumEveryTarget() override { use(0); }
  // Makes Highway choose among `targets` only; 0 restores the default.
  static void use(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  }

  struct Results {
    std::vector<std::int32_t> acc;
    std::vector<std::int16_t> wire;
    std::vector<float> mean;
    BlockCheck check;
    WrappedTotal total;
  };
  static Results compute(std::size_t size) {
    // Some values are denormal, or become so when scaled.
    std::vector<float> gradient = random_gradient(5, size, 0.2F);
    std::vector<float> tiny(size);
    for (std::size_t i = 0; i < size; i += 7) {
      tiny[i] = (i % 2 == 0 ? 1e-41F : -1e-41F) * static_cast<float>(i);
      gradient[i] = tiny[i];
    }
    Results r;
    r.acc.assign(size, 3);
    r.wire.resize(size);
    r.mean.resize(size);
    std::int32_t observed = 0;
    (void)round_add(gradient, 1, kBits, rounding_key(9, 8, 7), 77, Accumulate::kAdd, r.acc,
                    observed);
    (void)round_add(tiny, kExponentMin, kBits, rounding_key(9, 8, 6), 77, Accumulate::kAdd, r.acc,
                    observed);
    r.check = pack_wrapped(r.acc, r.wire);
    r.total = inspect_wrapped(r.wire);
    dequantize_wrapped(r.wire, 1, 0.125F, r.mean);
    return r;
  }
};

TEST_F(WrappedSumEveryTarget, GivesTheSameBitsAtEverySize) {
  std::vector<std::size_t> sizes{1003, 1024};
  for (std::size_t n = 0; n < 70; ++n) {
    sizes.push_back(n);
  }
  use(0);
  const std::int64_t supported = hwy::SupportedTargets();
  for (const std::size_t n : sizes) {
    use(0);
    const Results expected = compute(n);
    for (std::int64_t left = supported; left != 0; left &= left - 1) {
      use(left & -left);
      const Results found = compute(n);
      EXPECT_EQ(found.acc, expected.acc);
      EXPECT_EQ(found.wire, expected.wire);
      EXPECT_EQ(found.mean, expected.mean);
      EXPECT_EQ(found.check, expected.check);
      EXPECT_EQ(found.total.check, expected.total.check);
      EXPECT_EQ(found.total.largest, expected.total.largest);
    }
  }
}

TEST_F(WrappedSumEveryTarget, GivesTheSameBitsWhenDenormalsAreFlushed) {
  const Results expected = compute(1000);
  const unsigned modes = _mm_getcsr();
  _mm_setcsr(modes | 0x8040U);  // flush to zero, denormals are zero
  const Results found = compute(1000);
  _mm_setcsr(modes);
  EXPECT_EQ(found.acc, expected.acc);
  EXPECT_EQ(found.wire, expected.wire);
  EXPECT_EQ(found.mean, expected.mean);
}

}  // namespace
}  // namespace mayfly::collectives
