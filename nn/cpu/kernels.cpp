#include "nn/cpu/kernels.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "nn/cpu/tensor_access.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nn/cpu/block_vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

constexpr std::size_t kChunkPixels = 64;

HWY_INLINE Vec load(const float* from) {
  return hn::Load(Tag(), from);
}
HWY_INLINE Vec loadu(const float* from) {
  return hn::LoadU(Tag(), from);
}

/// Calls visit(first element, first channel, pixels) for each chunk of each image, channels
/// outermost.
template <typename Visit>
HWY_INLINE void for_each_chunk(const BlockedShape& shape, const Visit& visit) {
  const std::size_t blocks = shape.channels / kBlock;
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t lane = 0; lane < kBlock; lane += lanes()) {
      for (std::size_t n = 0; n < shape.images; ++n) {
        for (std::size_t p = 0; p < shape.pixels; p += kChunkPixels) {
          visit(((n * blocks + b) * shape.pixels + p) * kBlock + lane, b * kBlock + lane,
                HWY_MIN(kChunkPixels, shape.pixels - p));
        }
      }
    }
  }
}

/// Calls visit(first element, first channel) for each plane of one channel vector of one image, in
/// memory order.
template <typename Visit>
HWY_INLINE void for_each_plane(const BlockedShape& shape, const Visit& visit) {
  const std::size_t blocks = shape.channels / kBlock;
  for (std::size_t n = 0; n < shape.images; ++n) {
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t lane = 0; lane < kBlock; lane += lanes()) {
        visit((n * blocks + b) * shape.pixels * kBlock + lane, b * kBlock + lane);
      }
    }
  }
}

/// Sums term(pixel) over a chunk in four interleaved chains.
template <typename Term>
HWY_INLINE Vec chunk_sum(std::size_t pixels, const Term& term) {
  Vec s0 = hn::Zero(Tag());
  Vec s1 = s0;
  Vec s2 = s0;
  Vec s3 = s0;
  std::size_t p = 0;
  for (; p + 4 <= pixels; p += 4) {
    s0 = hn::Add(s0, term(p));
    s1 = hn::Add(s1, term(p + 1));
    s2 = hn::Add(s2, term(p + 2));
    s3 = hn::Add(s3, term(p + 3));
  }
  for (; p < pixels; ++p) {
    s0 = hn::Add(s0, term(p));
  }
  return hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
}

void clear(const BlockedShape& shape, const ChannelSums& sums) {
  for (std::size_t c = 0; c < shape.channels; ++c) {
    sums.first[c] = 0;
    sums.second[c] = 0;
  }
}

void moments(const BlockedShape& shape, const float* x, const ChannelSums& sums) {
  clear(shape, sums);
  for_each_chunk(shape, [&](std::size_t at, std::size_t c, std::size_t pixels) HWY_ATTR {
    const float* from = x + at;
    const Vec sum =
        chunk_sum(pixels, [&](std::size_t p) HWY_ATTR { return load(from + p * kBlock); });
    const Vec mean = hn::Mul(sum, hn::Set(Tag(), 1.0F / static_cast<float>(pixels)));
    const Vec centred = chunk_sum(pixels, [&](std::size_t p) HWY_ATTR {
      const Vec d = hn::Sub(load(from + p * kBlock), mean);
      return hn::Mul(d, d);
    });
    HWY_ALIGN float sums_f[kBlock];
    HWY_ALIGN float means_f[kBlock];
    HWY_ALIGN float centred_f[kBlock];
    hn::Store(sum, Tag(), sums_f);
    hn::Store(mean, Tag(), means_f);
    hn::Store(centred, Tag(), centred_f);
    // sum of x^2 = sum of (x - m)^2 + m * (2 * sum of x - n * m), for any m.
    for (std::size_t i = 0; i < lanes(); ++i) {
      const double s = sums_f[i];
      const double m = means_f[i];
      sums.first[c + i] += s;
      sums.second[c + i] += centred_f[i] + m * (2 * s - static_cast<double>(pixels) * m);
    }
  });
}

void normalise_relu(const BlockedShape& shape, const float* x, const Affine& affine, float* out) {
  for_each_plane(shape, [&](std::size_t at, std::size_t c) HWY_ATTR {
    const Vec scale = loadu(affine.scale + c);
    const Vec shift = loadu(affine.shift + c);
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      hn::Store(relu(hn::MulAdd(load(x + i), scale, shift)), Tag(), out + i);
    }
  });
}

void normalise_add_relu(const BlockedShape& shape, const float* x, const Affine& affine,
                        const float* residual, float* out) {
  for_each_plane(shape, [&](std::size_t at, std::size_t c) HWY_ATTR {
    const Vec scale = loadu(affine.scale + c);
    const Vec shift = loadu(affine.shift + c);
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      const Vec y = hn::MulAdd(load(x + i), scale, shift);
      hn::Store(relu(hn::Add(y, load(residual + i))), Tag(), out + i);
    }
  });
}

void normalise_both_add_relu(const BlockedShape& shape, const float* x, const Affine& affine,
                             const float* residual, const Affine& residual_affine, float* out) {
  for_each_plane(shape, [&](std::size_t at, std::size_t c) HWY_ATTR {
    const Vec scale = loadu(affine.scale + c);
    const Vec shift = loadu(affine.shift + c);
    const Vec residual_scale = loadu(residual_affine.scale + c);
    const Vec residual_shift = loadu(residual_affine.shift + c);
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      const Vec y = hn::MulAdd(load(x + i), scale, shift);
      const Vec r = hn::MulAdd(load(residual + i), residual_scale, residual_shift);
      hn::Store(relu(hn::Add(y, r)), Tag(), out + i);
    }
  });
}

/// Takes the sums over term(element, x), the gradient through the ReLU, on the way.
template <typename Term>
HWY_INLINE void sum_gradients(const BlockedShape& shape, const float* x, const float* mean,
                              const ChannelSums& sums, const Term& term) {
  clear(shape, sums);
  for_each_chunk(shape, [&](std::size_t at, std::size_t c, std::size_t pixels) HWY_ATTR {
    const Vec centre = loadu(mean + c);
    Vec products0 = hn::Zero(Tag());
    Vec products1 = products0;
    const Vec total = chunk_sum(pixels, [&](std::size_t p) HWY_ATTR {
      const std::size_t i = at + p * kBlock;
      const Vec value = load(x + i);
      const Vec g = term(i, c, value);
      Vec& products = p % 2 == 0 ? products0 : products1;
      products = hn::MulAdd(g, hn::Sub(value, centre), products);
      return g;
    });
    add_to(sums.first + c, total);
    add_to(sums.second + c, hn::Add(products0, products1));
  });
}

void gradient_sums(const BlockedShape& shape, const float* gradient, const float* x,
                   const float* mean, const ChannelSums& sums) {
  sum_gradients(shape, x, mean, sums,
                [&](std::size_t i, std::size_t, Vec) HWY_ATTR { return load(gradient + i); });
}

template <bool kHasAddend>
HWY_INLINE Vec total_gradient(const GradientWrite& to, std::size_t i) {
  const Vec g = load(to.out + i);
  if constexpr (kHasAddend) {
    return hn::Add(g, load(to.addend + i));
  } else {
    return g;
  }
}

template <bool kHasAddend>
void finish_masked(const BlockedShape& shape, const GradientWrite& to) {
  const auto store = [&](std::size_t i, Vec g) HWY_ATTR {
    hn::Store(g, Tag(), to.out + i);
    return g;
  };
  if (to.mask == ReluMask::kAffine) {
    sum_gradients(shape, to.x, to.mean, to.sums, [&](std::size_t i, std::size_t c, Vec x) HWY_ATTR {
      return store(i, masked_by_affine(total_gradient<kHasAddend>(to, i), x,
                                       loadu(to.affine.scale + c), loadu(to.affine.shift + c)));
    });
    return;
  }
  sum_gradients(shape, to.x, to.mean, to.sums, [&](std::size_t i, std::size_t, Vec) HWY_ATTR {
    const auto active = hn::Gt(load(to.relu_output + i), hn::Zero(Tag()));
    return store(i, hn::IfThenElseZero(active, total_gradient<kHasAddend>(to, i)));
  });
}

void add_in_place(const BlockedShape& shape, const GradientWrite& to) {
  for_each_plane(shape, [&](std::size_t at, std::size_t) HWY_ATTR {
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      hn::Store(total_gradient<true>(to, i), Tag(), to.out + i);
    }
  });
}

void finish_gradient(const BlockedShape& shape, const GradientWrite& to) {
  const bool has_addend = to.addend != nullptr;
  if (to.mask != ReluMask::kNone) {
    has_addend ? finish_masked<true>(shape, to) : finish_masked<false>(shape, to);
  } else if (has_addend) {
    add_in_place(shape, to);
  }
}

struct InputGradient {
  InputGradient(const NormGradient& factors, std::size_t c)
      : gradient_factor(loadu(factors.gradient_factor + c)),
        centred_factor(loadu(factors.centred_factor + c)),
        constant(loadu(factors.constant + c)),
        mean(loadu(factors.mean + c)) {}

  HWY_INLINE Vec operator()(Vec gradient, Vec x) const {
    return hn::MulAdd(gradient_factor, gradient,
                      hn::MulAdd(centred_factor, hn::Sub(x, mean), constant));
  }

  Vec gradient_factor;
  Vec centred_factor;
  Vec constant;
  Vec mean;
};

void input_gradient(const BlockedShape& shape, const float* gradient, const float* x,
                    const NormGradient& factors, float* dx) {
  for_each_plane(shape, [&](std::size_t at, std::size_t c) HWY_ATTR {
    const InputGradient input_gradient_of(factors, c);
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      hn::Store(input_gradient_of(load(gradient + i), load(x + i)), Tag(), dx + i);
    }
  });
}

}  // namespace

const Kernels& kernels() {
  static constexpr Kernels kTable{.block = kBlock,
                                  .moments = moments,
                                  .normalise_relu = normalise_relu,
                                  .normalise_add_relu = normalise_add_relu,
                                  .normalise_both_add_relu = normalise_both_add_relu,
                                  .finish_gradient = finish_gradient,
                                  .gradient_sums = gradient_sums,
                                  .input_gradient = input_gradient};
  return kTable;
}

}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mayfly::nn::cpu {

const Kernels& kernels_for(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: return N_AVX3::kernels();
    case Isa::kPortable: return HWY_STATIC_DISPATCH(kernels)();
    case Isa::kAvx2: return N_AVX2::kernels();
  }
  UNREACHABLE("every instruction set has kernels");
}

}  // namespace mayfly::nn::cpu
#endif
