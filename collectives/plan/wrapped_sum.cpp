#include "collectives/plan/wrapped_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/random.hpp"
#include "collectives/plan/block_exponent.hpp"
#include "collectives/plan/wrapped_sum_kernels.hpp"

namespace mayfly::collectives {
namespace {

// The linear weights tell any two elements of a block apart, the mixed ones are as good as random.
constexpr internal::CheckWeights kWeights = [] {
  internal::CheckWeights weights{};
  for (std::uint32_t i = 0; i < kBlockElements; ++i) {
    weights.linear[i] = 2 * i + 1;
    weights.mixed[i] = static_cast<std::uint32_t>(mix64(i)) | 1U;
  }
  return weights;
}();

void require_block(std::size_t size) {
  ENSURE(size <= kBlockElements, "checks are of single blocks");
}

}  // namespace

RoundingKey rounding_key(std::uint64_t seed, std::uint64_t step, std::uint32_t microbatch) {
  const std::uint64_t bits =
      CounterRandom(seed).split("gradient rounding").split(step).bits(microbatch);
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
}

QuantizeResult round_add(std::span<const float> gradient, std::int32_t exponent, int bits,
                         RoundingKey key, std::uint32_t first, Accumulate mode,
                         std::span<std::int32_t> acc, std::int32_t& observed) {
  ENSURE(gradient.size() == acc.size(), "a gradient is added to a sum of its own size");
  ENSURE(internal::legal_exponent(exponent) && bits >= kWrappedBits && bits <= 30,
         "exponent or bits out of range");
  const float scale = internal::power_of_two(kWrappedBits - std::max(exponent, kExponentMin));
  const std::uint32_t largest = internal::scale_draw_add(
      gradient.data(), scale, key, first, mode == Accumulate::kAdd, acc.data(), gradient.size());
  observed = internal::exponent_above(largest);
  const std::int32_t limit =
      exponent == kUnsetExponent ? kUnsetExponent : exponent - kWrappedBits + bits;
  return {.overflow =
              largest >= std::min(internal::overflow_pattern(limit), internal::kInfinityPattern),
          .nonfinite = largest >= internal::kInfinityPattern};
}

BlockCheck pack_wrapped(std::span<const std::int32_t> sum, std::span<std::int16_t> wire) {
  ENSURE(sum.size() == wire.size(), "a sum is packed into a vector of its own size");
  require_block(sum.size());
  return internal::narrow_and_check(sum.data(), kWeights, wire.data(), sum.size());
}

WrappedTotal inspect_wrapped(std::span<const std::int16_t> total) {
  require_block(total.size());
  return internal::check_and_measure(total.data(), kWeights, total.size());
}

std::int32_t observed_total(std::uint32_t largest, std::int32_t exponent) {
  if (largest == 0) {
    return kUnsetExponent;
  }
  const auto width = static_cast<std::int32_t>(std::bit_width(largest));
  return std::clamp(std::max(exponent, kExponentMin) - kWrappedBits + width, kExponentMin,
                    kExponentMax);
}

std::int32_t safe_exponent(std::int32_t observed, std::uint32_t microbatches) {
  if (observed == kUnsetExponent) {
    return kUnsetExponent;
  }
  // One more for the units that rounding up may add, at most one per microbatch.
  const auto doublings = static_cast<std::int32_t>(std::bit_width(microbatches - 1));
  return std::min(observed + doublings + 1, kExponentMax);
}

bool too_large_to_round(std::int32_t observed, std::int32_t exponent, int bits) {
  if (observed == kUnsetExponent) {
    return false;
  }
  return exponent == kUnsetExponent ||
         observed > std::min(exponent - kWrappedBits + bits, kExponentMax);
}

void dequantize_wrapped(std::span<const std::int16_t> total, std::int32_t exponent, float scale,
                        std::span<float> out) {
  ENSURE(total.size() == out.size(), "a sum is converted into a vector of its own size");
  ENSURE(internal::legal_exponent(exponent), "exponent out of range");
  float factor = internal::power_of_two(std::max(exponent, kExponentMin) - kWrappedBits) * scale;
  if (!(std::fabs(factor) >= std::numeric_limits<float>::min())) {
    factor = 0.0F;  // not a denormal, whose treatment depends on the thread's modes
  }
  internal::widen_and_scale(total.data(), factor, out.data(), total.size());
}

}  // namespace mayfly::collectives
