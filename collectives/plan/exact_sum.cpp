#include "collectives/plan/exact_sum.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/plan/exact_sum.cpp"
#include <hwy/foreach_target.h>  // includes this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mayfly::collectives::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One vector's worth. The tail uses the same code with one lane, so that it rounds alike.
template <bool kAdd, class D>
hn::VFromD<hn::RebindToSigned<D>> quantize_lanes(D d, const float* gradient, float scale,
                                                 std::int32_t* acc) {
  const hn::RebindToSigned<D> di;
  const auto g = hn::LoadU(d, gradient);
  const auto magnitude = hn::And(hn::BitCast(di, g), hn::Set(di, 0x7fffffff));
  auto quantised = hn::NearestInt(hn::Mul(g, hn::Set(d, scale)));
  if constexpr (kAdd) {
    quantised = hn::Add(hn::LoadU(di, acc), quantised);
  }
  hn::StoreU(quantised, di, acc);
  return magnitude;
}

template <bool kAdd>
std::uint32_t scale_round(const float* gradient, float scale, std::int32_t* acc,
                          std::size_t count) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(di);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    largest = hn::Max(largest, quantize_lanes<kAdd>(d, gradient + i, scale, acc + i));
  }
  std::int32_t result = hn::GetLane(hn::MaxOfLanes(di, largest));
  for (; i < count; ++i) {
    const std::int32_t last = hn::GetLane(quantize_lanes<kAdd>(one, gradient + i, scale, acc + i));
    result = result < last ? last : result;
  }
  return static_cast<std::uint32_t>(result);
}

// acc[i] += nearest integer to gradient[i] * scale (or = it, if `add` is false); returns the
// largest bit pattern of |gradient[i]|, which orders like the magnitude itself, with infinities and
// NaNs above everything.
std::uint32_t ScaleRoundAdd(const float* gradient, float scale, bool add, std::int32_t* acc,
                            std::size_t count) {
  return add ? scale_round<true>(gradient, scale, acc, count)
             : scale_round<false>(gradient, scale, acc, count);
}

template <class D>
void dequantize_lanes(D d, const std::int32_t* sum, float factor, float* out) {
  const hn::RebindToSigned<D> di;
  hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::LoadU(di, sum)), hn::Set(d, factor)), d, out);
}

// out[i] = float(sum[i]) * factor.
void ScaleToFloat(const std::int32_t* sum, float factor, float* out, std::size_t count) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    dequantize_lanes(d, sum + i, factor, out + i);
  }
  for (; i < count; ++i) {
    dequantize_lanes(one, sum + i, factor, out + i);
  }
}

}  // namespace mayfly::collectives::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mayfly::collectives {
namespace internal {

HWY_EXPORT(ScaleRoundAdd);
HWY_EXPORT(ScaleToFloat);

}  // namespace internal
namespace {

namespace math = exact_sum_math;

bool legal(std::int32_t exponent, int bits) {
  return is_legal_exponent(exponent) && bits >= magnitude_bits(kMicrobatchesMax) && bits <= 30;
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
  const float scale = math::scale_of(exponent, bits);
  const std::uint32_t largest = HWY_DYNAMIC_DISPATCH(internal::ScaleRoundAdd)(
      gradient.data(), scale, mode == Accumulate::kAdd, acc.data(), gradient.size());
  observed = math::exponent_above(largest);
  return {.overflow = math::overflows(largest, exponent), .nonfinite = math::is_nonfinite(largest)};
}

void dequantize(std::span<const std::int32_t> sum, std::int32_t exponent, int bits, float scale,
                std::span<float> out) {
  ENSURE(sum.size() == out.size(), "a sum is converted into a vector of its own size");
  ENSURE(legal(exponent, bits), "exponent or bits out of range");
  const float factor = math::factor_of(exponent, bits, scale);
  HWY_DYNAMIC_DISPATCH(internal::ScaleToFloat)(sum.data(), factor, out.data(), sum.size());
}

std::int32_t next_exponent(std::int32_t previous, std::int32_t observed, Decay decay,
                           std::int32_t headroom) {
  const std::int32_t wanted = observed == kUnsetExponent ? kUnsetExponent : observed + headroom;
  const std::int32_t least = previous - (decay == Decay::kByOne ? 1 : 0);
  return std::clamp(std::max(wanted, least), kUnsetExponent, kExponentMax);
}

}  // namespace mayfly::collectives
#endif  // HWY_ONCE
