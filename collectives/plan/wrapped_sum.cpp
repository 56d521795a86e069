#include "collectives/plan/wrapped_sum.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "base/random.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/plan/wrapped_sum.cpp"
#include <hwy/foreach_target.h>  // includes this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mayfly::collectives::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Every loop runs whole vectors, then the same code with one lane.
template <class Step>
void for_each_vector(std::size_t count, const Step& step) {
  const hn::ScalableTag<std::int32_t> d;
  const hn::CappedTag<std::int32_t, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    step(d, i);
  }
  for (; i < count; ++i) {
    step(one, i);
  }
}

// Uniform in (0, 1): an odd multiple of 2^-21, so that fractions too small to survive a flush of
// denormals never decide anything. The mixer is a 32-bit finaliser of two multiplications.
template <class D, class DU = hn::RebindToUnsigned<D>>
hn::VFromD<hn::RebindToFloat<D>> draw(D di, hn::VFromD<DU> element, RoundingKey key) {
  const DU du;
  const hn::RebindToFloat<D> df;
  auto x = hn::Add(hn::Mul(element, hn::Set(du, 0x9e3779b1U)), hn::Set(du, key.low));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, 0x7feb352dU));
  x = hn::Xor(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, key.high));
  x = hn::Mul(x, hn::Set(du, 0x846ca68bU));
  x = hn::ShiftRight<12>(hn::Xor(x, hn::ShiftRight<16>(x)));
  const auto whole = hn::ConvertTo(df, hn::BitCast(di, x));
  return hn::Mul(hn::Add(whole, hn::Set(df, 0.5F)), hn::Set(df, 0x1p-20F));
}

template <class D>
hn::VFromD<D> round_lanes(D di, const float* gradient, float scale, RoundingKey key,
                          std::uint32_t first, hn::VFromD<D>& largest) {
  const hn::RebindToFloat<D> df;
  const hn::RebindToUnsigned<D> du;
  const auto g = hn::LoadU(df, gradient);
  largest = hn::Max(largest, hn::And(hn::BitCast(di, g), hn::Set(di, 0x7fffffff)));
  const auto x = hn::Mul(g, hn::Set(df, scale));
  const auto below = hn::Floor(x);
  const auto draws = draw(di, hn::Iota(du, first), key);
  const auto up = hn::IfThenElseZero(hn::Lt(draws, hn::Sub(x, below)), hn::Set(df, 1.0F));
  return hn::ConvertTo(di, hn::Add(below, up));
}

template <bool kAdd, class D>
void draw_add_lanes(D di, const float* gradient, float scale, RoundingKey key, std::uint32_t first,
                    std::int32_t* acc, hn::VFromD<D>& largest) {
  auto rounded = round_lanes(di, gradient, scale, key, first, largest);
  if constexpr (kAdd) {
    rounded = hn::Add(rounded, hn::LoadU(di, acc));
  }
  hn::StoreU(rounded, di, acc);
}

template <bool kAdd>
std::uint32_t scale_draw(const float* gradient, float scale, RoundingKey key, std::uint32_t first,
                         std::int32_t* acc, std::size_t count) {
  const hn::ScalableTag<std::int32_t> d;
  const hn::CappedTag<std::int32_t, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(d);
  auto last = hn::Zero(one);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    draw_add_lanes<kAdd>(d, gradient + i, scale, key, first + static_cast<std::uint32_t>(i),
                         acc + i, largest);
  }
  for (; i < count; ++i) {
    draw_add_lanes<kAdd>(one, gradient + i, scale, key, first + static_cast<std::uint32_t>(i),
                         acc + i, last);
  }
  const std::int32_t whole = hn::GetLane(hn::MaxOfLanes(d, largest));
  const std::int32_t tail = hn::GetLane(last);
  return static_cast<std::uint32_t>(whole < tail ? tail : whole);
}

// Returns the largest bit pattern of |gradient[i]|.
std::uint32_t ScaleDrawAdd(const float* gradient, float scale, RoundingKey key, std::uint32_t first,
                           bool add, std::int32_t* acc, std::size_t count) {
  return add ? scale_draw<true>(gradient, scale, key, first, acc, count)
             : scale_draw<false>(gradient, scale, key, first, acc, count);
}

// Weighted sums in as many lanes as the vector has, and one for the tail.
struct Checker {
  using D = hn::ScalableTag<std::int32_t>;
  using One = hn::CappedTag<std::int32_t, 1>;

  template <class DI>
  HWY_ATTR void add(DI di, std::size_t i, hn::VFromD<DI> value, hn::VFromD<DI>& linear,
                    hn::VFromD<DI>& mixed) const {
    const auto* first = reinterpret_cast<const std::int32_t*>(linear_weights + i);
    const auto* second = reinterpret_cast<const std::int32_t*>(mixed_weights + i);
    linear = hn::Add(linear, hn::Mul(value, hn::LoadU(di, first)));
    mixed = hn::Add(mixed, hn::Mul(value, hn::LoadU(di, second)));
  }

  const std::uint32_t* linear_weights;
  const std::uint32_t* mixed_weights;
};

/// All lanes of `vector` modulo 2^32. Highway's sum ends in additions of signed numbers where
/// vectors have 512 bits, which must not overflow.
template <class V>
std::uint32_t wrapped_total(V vector) {
  const Checker::D d;
  HWY_ALIGN std::int32_t lanes[hn::MaxLanes(d)];
  hn::Store(vector, d, lanes);
  std::uint32_t total = 0;
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    total += static_cast<std::uint32_t>(lanes[i]);
  }
  return total;
}

BlockCheck NarrowAndCheck(const std::int32_t* sum, const std::uint32_t* linear_weights,
                          const std::uint32_t* mixed_weights, std::int16_t* wire,
                          std::size_t count) {
  const Checker checker{linear_weights, mixed_weights};
  const Checker::D d;
  const Checker::One one;
  const auto narrow = [&](auto di, std::size_t i, auto& linear, auto& mixed) HWY_ATTR {
    const hn::Rebind<std::uint16_t, decltype(di)> d16;
    const auto value = hn::LoadU(di, sum + i);
    checker.add(di, i, value, linear, mixed);
    hn::StoreU(hn::DemoteTo(d16, hn::And(value, hn::Set(di, 0xffff))), d16,
               reinterpret_cast<std::uint16_t*>(wire + i));
  };
  auto linear = hn::Zero(d);
  auto mixed = hn::Zero(d);
  auto last_linear = hn::Zero(one);
  auto last_mixed = hn::Zero(one);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    narrow(d, i, linear, mixed);
  }
  for (; i < count; ++i) {
    narrow(one, i, last_linear, last_mixed);
  }
  return {wrapped_total(linear) + static_cast<std::uint32_t>(hn::GetLane(last_linear)),
          wrapped_total(mixed) + static_cast<std::uint32_t>(hn::GetLane(last_mixed))};
}

WrappedTotal CheckAndMeasure(const std::int16_t* total, const std::uint32_t* linear_weights,
                             const std::uint32_t* mixed_weights, std::size_t count) {
  const Checker checker{linear_weights, mixed_weights};
  const Checker::D d;
  const Checker::One one;
  const auto measure = [&](auto di, std::size_t i, auto& linear, auto& mixed, auto& largest)
                           HWY_ATTR {
                             const hn::Rebind<std::int16_t, decltype(di)> d16;
                             const auto value = hn::PromoteTo(di, hn::LoadU(d16, total + i));
                             checker.add(di, i, value, linear, mixed);
                             largest = hn::Max(largest, hn::Abs(value));
                           };
  auto linear = hn::Zero(d);
  auto mixed = hn::Zero(d);
  auto largest = hn::Zero(d);
  auto last_linear = hn::Zero(one);
  auto last_mixed = hn::Zero(one);
  auto last_largest = hn::Zero(one);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    measure(d, i, linear, mixed, largest);
  }
  for (; i < count; ++i) {
    measure(one, i, last_linear, last_mixed, last_largest);
  }
  WrappedTotal result;
  result.check.linear =
      wrapped_total(linear) + static_cast<std::uint32_t>(hn::GetLane(last_linear));
  result.check.mixed = wrapped_total(mixed) + static_cast<std::uint32_t>(hn::GetLane(last_mixed));
  const std::int32_t whole = hn::GetLane(hn::MaxOfLanes(d, largest));
  const std::int32_t tail = hn::GetLane(last_largest);
  result.largest = static_cast<std::uint32_t>(whole < tail ? tail : whole);
  return result;
}

// out[i] = float(total[i]) * factor.
void WidenAndScale(const std::int16_t* total, float factor, float* out, std::size_t count) {
  for_each_vector(count, [&](auto di, std::size_t i) HWY_ATTR {
    const hn::RebindToFloat<decltype(di)> df;
    const hn::Rebind<std::int16_t, decltype(di)> d16;
    const auto value = hn::PromoteTo(di, hn::LoadU(d16, total + i));
    hn::StoreU(hn::Mul(hn::ConvertTo(df, value), hn::Set(df, factor)), df, out + i);
  });
}

}  // namespace mayfly::collectives::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mayfly::collectives {
namespace internal {

HWY_EXPORT(ScaleDrawAdd);
HWY_EXPORT(NarrowAndCheck);
HWY_EXPORT(CheckAndMeasure);
HWY_EXPORT(WidenAndScale);

}  // namespace internal
namespace {

// Weights of a block's elements in the checks: odd, so that no power of two is lost.
struct CheckWeights {
  std::uint32_t linear[kBlockElements];
  std::uint32_t mixed[kBlockElements];
};

// The linear weights tell any two elements of a block apart, the mixed ones are as good as random.
constexpr CheckWeights kWeights = [] {
  CheckWeights weights{};
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
  ENSURE(is_legal_exponent(exponent) && bits >= magnitude_bits(kMicrobatchesMax) && bits <= 30,
         "exponent or bits out of range");
  const float scale = exact_sum_math::scale_of(exponent, kWrappedBits);
  const std::uint32_t largest = HWY_DYNAMIC_DISPATCH(internal::ScaleDrawAdd)(
      gradient.data(), scale, key, first, mode == Accumulate::kAdd, acc.data(), gradient.size());
  observed = exact_sum_math::exponent_above(largest);
  const std::int32_t limit = exponent == kUnsetExponent
                                 ? kUnsetExponent
                                 : std::min(exponent - kWrappedBits + bits, kExponentMax);
  return {.overflow = exact_sum_math::overflows(largest, limit),
          .nonfinite = exact_sum_math::is_nonfinite(largest)};
}

BlockCheck pack_wrapped(std::span<const std::int32_t> sum, std::span<std::int16_t> wire) {
  ENSURE(sum.size() == wire.size(), "a sum is packed into a vector of its own size");
  require_block(sum.size());
  return HWY_DYNAMIC_DISPATCH(internal::NarrowAndCheck)(sum.data(), kWeights.linear, kWeights.mixed,
                                                        wire.data(), sum.size());
}

WrappedTotal inspect_wrapped(std::span<const std::int16_t> total) {
  require_block(total.size());
  return HWY_DYNAMIC_DISPATCH(internal::CheckAndMeasure)(total.data(), kWeights.linear,
                                                         kWeights.mixed, total.size());
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
  ENSURE(is_legal_exponent(exponent), "exponent out of range");
  const float factor = exact_sum_math::factor_of(exponent, kWrappedBits, scale);
  HWY_DYNAMIC_DISPATCH(internal::WidenAndScale)(total.data(), factor, out.data(), total.size());
}

}  // namespace mayfly::collectives
#endif  // HWY_ONCE
