#include "collectives/plan/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "collectives/plan/block_exponent.hpp"
#include "collectives/plan/exact_sum_kernels.hpp"

namespace mayfly::collectives {
namespace {

using internal::exponent_above;
using internal::kInfinityPattern;
using internal::overflow_pattern;
using internal::power_of_two;

bool legal(std::int32_t exponent, int bits) {
  return internal::legal_exponent(exponent) && bits >= magnitude_bits(kMicrobatchesMax) &&
         bits <= 30;
}

}  // namespace

BlockLayout::BlockLayout(const std::vector<std::size_t>& tensor_sizes) {
  offsets_.push_back(0);
  for (const std::size_t tensor_size : tensor_sizes) {
    std::size_t left = tensor_size;
    while (left > 0) {
      const std::size_t block = std::min(left, kBlockElements);
      offsets_.push_back(offsets_.back() + block);
      left -= block;
    }
  }
}

std::size_t BlockLayout::first_block_at(std::size_t element) const {
  const auto found = std::lower_bound(offsets_.begin(), offsets_.end(), element);
  ENSURE(found != offsets_.end() && *found == element, "no block starts at this element");
  return static_cast<std::size_t>(found - offsets_.begin());
}

int magnitude_bits(std::uint32_t microbatches) {
  ENSURE(microbatches >= 1 && microbatches <= kMicrobatchesMax,
         "the number of microbatches in one sum is limited by the range of int32");
  return 30 - static_cast<int>(std::bit_width(microbatches - 1));
}

QuantizeResult quantize_add(std::span<const float> gradient, std::int32_t exponent, int bits,
                            std::span<std::int32_t> acc, std::int32_t& observed, Accumulate mode) {
  ENSURE(gradient.size() == acc.size(), "a gradient is added to a sum of its own size");
  ENSURE(legal(exponent, bits), "exponent or bits out of range");
  const float scale = power_of_two(bits - std::max(exponent, kExponentMin));
  const std::uint32_t largest = internal::scale_round_add(
      gradient.data(), scale, mode == Accumulate::kAdd, acc.data(), gradient.size());
  observed = exponent_above(largest);
  return {.overflow = largest >= overflow_pattern(exponent),
          .nonfinite = largest >= kInfinityPattern};
}

void dequantize(std::span<const std::int32_t> sum, std::int32_t exponent, int bits, float scale,
                std::span<float> out) {
  ENSURE(sum.size() == out.size(), "a sum is converted into a vector of its own size");
  ENSURE(legal(exponent, bits), "exponent or bits out of range");
  float factor = power_of_two(std::max(exponent, kExponentMin) - bits) * scale;
  if (!(std::fabs(factor) >= std::numeric_limits<float>::min())) {
    factor = 0.0F;  // not a denormal, whose treatment depends on the thread's modes
  }
  internal::scale_to_float(sum.data(), factor, out.data(), sum.size());
}

std::int32_t next_exponent(std::int32_t previous, std::int32_t observed, Decay decay,
                           std::int32_t headroom) {
  const std::int32_t wanted = observed == kUnsetExponent ? kUnsetExponent : observed + headroom;
  const std::int32_t least = previous - (decay == Decay::kByOne ? 1 : 0);
  return std::clamp(std::max(wanted, least), kUnsetExponent, kExponentMax);
}

}  // namespace mayfly::collectives
