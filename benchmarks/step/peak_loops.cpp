#include "benchmarks/step/peak_loops.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/step/peak_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mayfly::bench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

std::size_t lanes() {
  return hn::Lanes(Tag());
}

// Two multiply-adds start per cycle and each takes four or five; 16 registers hold twelve sums and
// two factors.
constexpr std::size_t kChains = 12;

double multiply_add(std::uint64_t rounds) {
  const Tag tag;
  const Vec factor = hn::Set(tag, 0.5F);  // the sums stay near 2, far from denormals
  const Vec addend = hn::Set(tag, 1.0F);
  Vec sums[kChains];
  for (std::size_t i = 0; i < kChains; ++i) {
    sums[i] = hn::Set(tag, static_cast<float>(i));
  }
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (Vec& sum : sums) {
      sum = hn::MulAdd(sum, factor, addend);
    }
  }
  Vec total = hn::Zero(tag);
  for (const Vec& sum : sums) {
    total = hn::Add(total, sum);
  }
  // So that the compiler cannot remove the loop.
  volatile float seen = hn::GetLane(total);
  static_cast<void>(seen);
  return 2.0 * static_cast<double>(rounds * kChains * lanes());
}

void triad(std::size_t count, const float* b, const float* c, float factor, float* a) {
  const Tag tag;
  const Vec factors = hn::Set(tag, factor);
  std::size_t i = 0;
  for (; i + lanes() <= count; i += lanes()) {
    hn::StoreU(hn::MulAdd(factors, hn::LoadU(tag, c + i), hn::LoadU(tag, b + i)), tag, a + i);
  }
  for (; i < count; ++i) {
    a[i] = b[i] + factor * c[i];
  }
}

}  // namespace

const PeakLoops& peak_loops() {
  static constexpr PeakLoops kTable{.multiply_add = multiply_add, .triad = triad};
  return kTable;
}

}  // namespace mayfly::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mayfly::bench {

const PeakLoops& peak_loops_for(nn::cpu::Isa isa) {
  return nn::cpu::for_isa(isa, N_AVX3::peak_loops, N_AVX2::peak_loops,
                          HWY_STATIC_DISPATCH(peak_loops))();
}

}  // namespace mayfly::bench
#endif
