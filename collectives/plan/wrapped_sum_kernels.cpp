#include "collectives/plan/wrapped_sum_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/plan/wrapped_sum_kernels.cpp"
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

std::uint32_t ScaleDrawAdd(const float* gradient, float scale, RoundingKey key, std::uint32_t first,
                           bool add, std::int32_t* acc, std::size_t count) {
  return add ? scale_draw<true>(gradient, scale, key, first, acc, count)
             : scale_draw<false>(gradient, scale, key, first, acc, count);
}

// Weighted sums in as many lanes as the vector has, and one for the tail.
struct Checker {
  using D = hn::ScalableTag<std::int32_t>;
  using One = hn::CappedTag<std::int32_t, 1>;
  explicit Checker(const CheckWeights& w) : weights(w) {}

  template <class DI>
  HWY_ATTR void add(DI di, std::size_t i, hn::VFromD<DI> value, hn::VFromD<DI>& linear,
                    hn::VFromD<DI>& mixed) const {
    const auto* first = reinterpret_cast<const std::int32_t*>(weights.linear + i);
    const auto* second = reinterpret_cast<const std::int32_t*>(weights.mixed + i);
    linear = hn::Add(linear, hn::Mul(value, hn::LoadU(di, first)));
    mixed = hn::Add(mixed, hn::Mul(value, hn::LoadU(di, second)));
  }

  const CheckWeights& weights;
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

BlockCheck NarrowAndCheck(const std::int32_t* sum, const CheckWeights& weights, std::int16_t* wire,
                          std::size_t count) {
  const Checker checker(weights);
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

WrappedTotal CheckAndMeasure(const std::int16_t* total, const CheckWeights& weights,
                             std::size_t count) {
  const Checker checker(weights);
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
namespace mayfly::collectives::internal {

HWY_EXPORT(ScaleDrawAdd);
HWY_EXPORT(NarrowAndCheck);
HWY_EXPORT(CheckAndMeasure);
HWY_EXPORT(WidenAndScale);

std::uint32_t scale_draw_add(const float* gradient, float scale, RoundingKey key,
                             std::uint32_t first, bool add, std::int32_t* acc, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(ScaleDrawAdd)(gradient, scale, key, first, add, acc, count);
}

BlockCheck narrow_and_check(const std::int32_t* sum, const CheckWeights& weights,
                            std::int16_t* wire, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(NarrowAndCheck)(sum, weights, wire, count);
}

WrappedTotal check_and_measure(const std::int16_t* total, const CheckWeights& weights,
                               std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(CheckAndMeasure)(total, weights, count);
}

void widen_and_scale(const std::int16_t* total, float factor, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(WidenAndScale)(total, factor, out, count);
}

}  // namespace mayfly::collectives::internal
#endif  // HWY_ONCE
