// Private to nn/cpu's kernels, compiled once per instruction set (Highway's "-inl.h" convention):
// the vector type of blocked activations.

#if defined(MAYFLY_BLOCK_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MAYFLY_BLOCK_VECTOR_INL
#undef MAYFLY_BLOCK_VECTOR_INL
#else
#define MAYFLY_BLOCK_VECTOR_INL
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "nn/cpu/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Channels per block.
constexpr std::size_t kBlock = HWY_TARGET == HWY_AVX3 ? 16 : 8;

using Tag = hn::CappedTag<float, kBlock>;
using Vec = hn::Vec<Tag>;

// Vectors narrower than a block cover a block in several passes, each over its own channels.
HWY_INLINE constexpr std::size_t lanes() {
  return hn::MaxLanes(Tag());
}

// Activations are fp32 or bf16 in memory and fp32 in registers.

template <typename D>
HWY_INLINE hn::Vec<D> load_value(D tag, const float* from) {
  return hn::Load(tag, from);
}
template <typename D>
HWY_INLINE hn::Vec<D> load_value(D tag, const hwy::bfloat16_t* from) {
  return hn::PromoteTo(tag, hn::Load(hn::Rebind<hwy::bfloat16_t, D>(), from));
}

template <typename D>
HWY_INLINE void store_value(D tag, hn::Vec<D> value, float* to) {
  hn::Store(value, tag, to);
}
template <typename D>
HWY_INLINE void store_value(D tag, hn::Vec<D> value, hwy::bfloat16_t* to) {
  // Highway truncates the lower half. Adding half a unit of the last remaining place (or one less,
  // if that is even already) makes it round to nearest even, as PyTorch does.
  const hn::RebindToUnsigned<D> bits_tag;
  const auto bits = hn::BitCast(bits_tag, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(bits_tag, 0x7FFF)));
  const hn::Rebind<hwy::bfloat16_t, D> to_tag;
  hn::Store(hn::DemoteTo(to_tag, hn::BitCast(tag, rounded)), to_tag, to);
}

template <typename T>
HWY_INLINE Vec load(const T* from) {
  return load_value(Tag(), from);
}
template <typename T>
HWY_INLINE void store(Vec value, T* to) {
  store_value(Tag(), value, to);
}

/// Adds the lanes of an fp32 sum to the channels' doubles.
HWY_INLINE void add_to(double* totals, Vec sum) {
  HWY_ALIGN float values[kBlock];
  hn::Store(sum, Tag(), values);
  for (std::size_t i = 0; i < lanes(); ++i) {
    totals[i] += static_cast<double>(values[i]);
  }
}

/// Adds the moments of a piece of `pixels` values per channel, given its sum, its mean and its sum
/// of (x - mean)^2. Each piece is centred on its own mean, so that a large mean does not cost
/// digits of the variance. Sum of x^2 = sum of (x - m)^2 + m * (2 * sum of x - n * m), for any m,
/// so `mean` may be any value close to it.
HWY_INLINE void add_moments(std::size_t pixels, Vec sum, Vec mean, Vec centred, std::size_t channel,
                            const ChannelSums& to) {
  HWY_ALIGN float sums[kBlock];
  HWY_ALIGN float means[kBlock];
  HWY_ALIGN float squares[kBlock];
  hn::Store(sum, Tag(), sums);
  hn::Store(mean, Tag(), means);
  hn::Store(centred, Tag(), squares);
  const auto n = static_cast<double>(pixels);
  for (std::size_t i = 0; i < lanes(); ++i) {
    const double s = sums[i];
    const double m = means[i];
    to.first[channel + i] += s;
    to.second[channel + i] += squares[i] + m * (2 * s - n * m);
  }
}

/// NaN stays NaN, so that a network with invalid values does not look healthy.
HWY_INLINE Vec relu(Vec x) {
  if constexpr (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) {
    return hn::Max(hn::Zero(Tag()), x);  // the second operand if either is NaN
  } else {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(Tag())), x);
  }
}

/// The gradient where the ReLU's input affine(x) is positive. The expression is the same as in the
/// forward kernel, so it has the same bits, and the ReLU's output need not be read.
HWY_INLINE Vec masked_by_affine(Vec gradient, Vec x, Vec scale, Vec shift) {
  const auto active = hn::Gt(hn::MulAdd(x, scale, shift), hn::Zero(Tag()));
  return hn::IfThenElseZero(active, gradient);
}

}  // namespace
}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
