#include "collectives/plan/exact_sum_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/plan/exact_sum_kernels.cpp"
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
namespace mayfly::collectives::internal {

HWY_EXPORT(ScaleRoundAdd);
HWY_EXPORT(ScaleToFloat);

std::uint32_t scale_round_add(const float* gradient, float scale, bool add, std::int32_t* acc,
                              std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(ScaleRoundAdd)(gradient, scale, add, acc, count);
}

void scale_to_float(const std::int32_t* sum, float factor, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(ScaleToFloat)(sum, factor, out, count);
}

}  // namespace mayfly::collectives::internal
#endif  // HWY_ONCE
