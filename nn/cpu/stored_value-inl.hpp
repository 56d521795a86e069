// Private to nn/cpu's kernels, compiled once per instruction set (Highway's "-inl.h" convention):
// activations are fp32 or bf16 in memory and fp32 in registers.

#if defined(MAYFLY_STORED_VALUE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MAYFLY_STORED_VALUE_INL
#undef MAYFLY_STORED_VALUE_INL
#else
#define MAYFLY_STORED_VALUE_INL
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

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
  // Highway cuts the lower half off; adding half a unit of the last place that stays (or one less,
  // if that is even already) makes it round to nearest even, as PyTorch does.
  const hn::RebindToUnsigned<D> bits_tag;
  const auto bits = hn::BitCast(bits_tag, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(bits_tag, 0x7FFF)));
  const hn::Rebind<hwy::bfloat16_t, D> to_tag;
  hn::Store(hn::DemoteTo(to_tag, hn::BitCast(tag, rounded)), to_tag, to);
}

}  // namespace
}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
