#include "collectives/plan/half_floats.hpp"

#include "base/check.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/plan/half_floats.cpp"
#include <hwy/foreach_target.h>  // includes this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mayfly::collectives::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Both formats work on integer patterns instead of the processor's own conversions: those differ
// between instruction sets, or are missing.

struct Bf16 {
  template <class DU, class VU = hn::VFromD<DU>>
  static hn::VFromD<hn::RebindToFloat<DU>> widen(DU /*du*/, VU half) {
    return hn::BitCast(hn::RebindToFloat<DU>(), hn::ShiftLeft<16>(half));
  }

  template <class DU, class VU = hn::VFromD<DU>>
  static VU narrow(DU du, hn::VFromD<hn::RebindToFloat<DU>> value) {
    const VU bits = hn::BitCast(du, value);
    const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const VU rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))));
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
    const VU quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000)), quiet, rounded);
  }
};

struct Fp16 {
  template <class DU, class VU = hn::VFromD<DU>>
  static hn::VFromD<hn::RebindToFloat<DU>> widen(DU du, VU half) {
    const hn::RebindToFloat<DU> df;
    const VU shifted = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fff)));
    const VU exponent = hn::And(shifted, hn::Set(du, 0x0f800000));
    const VU moved = hn::Add(shifted, hn::Set(du, (127U - 15U) << 23));
    const VU special = hn::Add(moved, hn::Set(du, (128U - 16U) << 23));  // infinity, NaN
    // A subnormal half is an integer times 2^-24: one subtraction normalises it.
    const auto bias = hn::BitCast(df, hn::Set(du, 113U << 23));
    const auto raised = hn::BitCast(df, hn::Add(moved, hn::Set(du, 1U << 23)));
    const VU tiny = hn::BitCast(du, hn::Sub(raised, bias));
    VU bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x0f800000)), special, moved);
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), tiny, bits);
    const VU sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000)));
    return hn::BitCast(df, hn::Or(bits, sign));
  }

  template <class DU, class VU = hn::VFromD<DU>>
  static VU narrow(DU du, hn::VFromD<hn::RebindToFloat<DU>> value) {
    const hn::RebindToFloat<DU> df;
    const VU bits = hn::BitCast(du, value);
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
    const VU odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const VU rebias = hn::Set(du, 0xfffU - ((127U - 15U) << 23));
    VU half = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(rebias, odd)));
    // Below the normal halves: adding 2^-1 lets the adder round to a multiple of 2^-24.
    const VU magic = hn::Set(du, 126U << 23);
    const auto aligned = hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, magic));
    const VU tiny = hn::Sub(hn::BitCast(du, aligned), magic);
    half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 113U << 23)), tiny, half);
    const VU infinity = hn::Set(du, 0x7c00);
    half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, ((127U + 16U) << 23) - 1)), infinity, half);
    half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000)), hn::Set(du, 0x7e00), half);
    return hn::Or(half, hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000)));
  }
};

// The tail runs the same code with one lane.
template <class Step>
void for_each_vector(std::size_t count, const Step& step) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::CappedTag<std::uint32_t, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    step(d, i);
  }
  for (; i < count; ++i) {
    step(one, i);
  }
}

template <class DU>
hn::VFromD<DU> load_half(DU du, const std::uint16_t* from) {
  return hn::PromoteTo(du, hn::LoadU(hn::Rebind<std::uint16_t, DU>(), from));
}

template <class DU>
void store_half(DU du, hn::VFromD<DU> half, std::uint16_t* to) {
  const hn::Rebind<std::uint16_t, DU> d16;
  const hn::RebindToSigned<DU> di;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, hn::And(half, hn::Set(du, 0xffff)))), d16, to);
}

template <class Format>
void narrow_all(const float* from, std::uint16_t* to, std::size_t count) {
  for_each_vector(count, [&](auto du, std::size_t i) {
    const hn::RebindToFloat<decltype(du)> df;
    store_half(du, Format::narrow(du, hn::LoadU(df, from + i)), to + i);
  });
}

template <class Format>
void widen_all(const std::uint16_t* from, float* to, std::size_t count) {
  for_each_vector(count, [&](auto du, std::size_t i) {
    const hn::RebindToFloat<decltype(du)> df;
    hn::StoreU(Format::widen(du, load_half(du, from + i)), df, to + i);
  });
}

template <class Format>
void add_all(std::uint16_t* dst, const std::uint16_t* src, std::size_t count) {
  for_each_vector(count, [&](auto du, std::size_t i) {
    const auto a = Format::widen(du, load_half(du, dst + i));
    const auto b = Format::widen(du, load_half(du, src + i));
    store_half(du, Format::narrow(du, hn::Add(a, b)), dst + i);
  });
}

void NarrowFp16(const float* from, std::uint16_t* to, std::size_t count) {
  narrow_all<Fp16>(from, to, count);
}
void NarrowBf16(const float* from, std::uint16_t* to, std::size_t count) {
  narrow_all<Bf16>(from, to, count);
}
void WidenFp16(const std::uint16_t* from, float* to, std::size_t count) {
  widen_all<Fp16>(from, to, count);
}
void WidenBf16(const std::uint16_t* from, float* to, std::size_t count) {
  widen_all<Bf16>(from, to, count);
}
void AddFp16(std::uint16_t* dst, const std::uint16_t* src, std::size_t count) {
  add_all<Fp16>(dst, src, count);
}
void AddBf16(std::uint16_t* dst, const std::uint16_t* src, std::size_t count) {
  add_all<Bf16>(dst, src, count);
}

}  // namespace mayfly::collectives::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mayfly::collectives {
namespace internal {

HWY_EXPORT(NarrowFp16);
HWY_EXPORT(NarrowBf16);
HWY_EXPORT(WidenFp16);
HWY_EXPORT(WidenBf16);
HWY_EXPORT(AddFp16);
HWY_EXPORT(AddBf16);

void require_same_size(std::size_t a, std::size_t b) {
  ENSURE(a == b, "a vector is converted or added into one of its own size");
}

}  // namespace internal

void to_fp16(std::span<const float> from, std::span<std::uint16_t> to) {
  internal::require_same_size(from.size(), to.size());
  HWY_DYNAMIC_DISPATCH(internal::NarrowFp16)(from.data(), to.data(), to.size());
}

void to_bf16(std::span<const float> from, std::span<std::uint16_t> to) {
  internal::require_same_size(from.size(), to.size());
  HWY_DYNAMIC_DISPATCH(internal::NarrowBf16)(from.data(), to.data(), to.size());
}

void from_fp16(std::span<const std::uint16_t> from, std::span<float> to) {
  internal::require_same_size(from.size(), to.size());
  HWY_DYNAMIC_DISPATCH(internal::WidenFp16)(from.data(), to.data(), to.size());
}

void from_bf16(std::span<const std::uint16_t> from, std::span<float> to) {
  internal::require_same_size(from.size(), to.size());
  HWY_DYNAMIC_DISPATCH(internal::WidenBf16)(from.data(), to.data(), to.size());
}

void add_fp16(std::span<std::uint16_t> dst, std::span<const std::uint16_t> src) {
  internal::require_same_size(dst.size(), src.size());
  HWY_DYNAMIC_DISPATCH(internal::AddFp16)(dst.data(), src.data(), dst.size());
}

void add_bf16(std::span<std::uint16_t> dst, std::span<const std::uint16_t> src) {
  internal::require_same_size(dst.size(), src.size());
  HWY_DYNAMIC_DISPATCH(internal::AddBf16)(dst.data(), src.data(), dst.size());
}

}  // namespace mayfly::collectives
#endif  // HWY_ONCE
