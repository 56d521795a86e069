#include "nn/cpu/kernels.hpp"

#include <algorithm>
#include <type_traits>

#include "base/check.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nn/cpu/block_vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

constexpr std::size_t kChunkPixels = 64;

template <typename T>
HWY_INLINE const T* typed(const void* values) {
  return static_cast<const T*>(values);
}
template <typename T>
HWY_INLINE T* typed(void* values) {
  return static_cast<T*>(values);
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

template <typename T>
void store_images(const float* values, std::size_t count, void* out) {
  if constexpr (std::is_same_v<T, float>) {
    std::copy_n(values, count, typed<float>(out));
  } else {
    std::size_t i = 0;
    for (; i + lanes() <= count; i += lanes()) {
      store(loadu(values + i), typed<T>(out) + i);
    }
    HWY_ALIGN float rest[kBlock] = {};
    HWY_ALIGN T rounded[kBlock] = {};
    std::copy_n(values + i, count - i, rest);
    store(hn::Load(Tag(), rest), rounded);
    std::copy_n(rounded, count - i, typed<T>(out) + i);
  }
}

template <typename T>
void moments(const BlockedShape& shape, const void* x, const ChannelSums& sums) {
  clear(shape, sums);
  for_each_chunk(shape, [&](std::size_t at, std::size_t c, std::size_t pixels) HWY_ATTR {
    const T* from = typed<T>(x) + at;
    const Vec sum =
        chunk_sum(pixels, [&](std::size_t p) HWY_ATTR { return load(from + p * kBlock); });
    const Vec mean = hn::Mul(sum, hn::Set(Tag(), 1.0F / static_cast<float>(pixels)));
    const Vec centred = chunk_sum(pixels, [&](std::size_t p) HWY_ATTR {
      const Vec d = hn::Sub(load(from + p * kBlock), mean);
      return hn::Mul(d, d);
    });
    add_moments(pixels, sum, mean, centred, c, sums);
  });
}

template <typename T>
void normalise_relu(const BlockedShape& shape, const void* x, const Affine& affine, void* out) {
  for_each_plane(shape, [&](std::size_t at, std::size_t c) HWY_ATTR {
    const Vec scale = loadu(affine.scale + c);
    const Vec shift = loadu(affine.shift + c);
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      store(relu(hn::MulAdd(load(typed<T>(x) + i), scale, shift)), typed<T>(out) + i);
    }
  });
}

template <typename T>
void normalise_add_relu(const BlockedShape& shape, const void* x, const Affine& affine,
                        const void* residual, void* out) {
  for_each_plane(shape, [&](std::size_t at, std::size_t c) HWY_ATTR {
    const Vec scale = loadu(affine.scale + c);
    const Vec shift = loadu(affine.shift + c);
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      const Vec y = hn::MulAdd(load(typed<T>(x) + i), scale, shift);
      store(relu(hn::Add(y, load(typed<T>(residual) + i))), typed<T>(out) + i);
    }
  });
}

template <typename T>
void normalise_both_add_relu(const BlockedShape& shape, const void* x, const Affine& affine,
                             const void* residual, const Affine& residual_affine, void* out) {
  for_each_plane(shape, [&](std::size_t at, std::size_t c) HWY_ATTR {
    const Vec scale = loadu(affine.scale + c);
    const Vec shift = loadu(affine.shift + c);
    const Vec residual_scale = loadu(residual_affine.scale + c);
    const Vec residual_shift = loadu(residual_affine.shift + c);
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      const Vec y = hn::MulAdd(load(typed<T>(x) + i), scale, shift);
      const Vec r = hn::MulAdd(load(typed<T>(residual) + i), residual_scale, residual_shift);
      store(relu(hn::Add(y, r)), typed<T>(out) + i);
    }
  });
}

/// Computes the sums over term(element, x), the gradient through the ReLU, in the same pass.
template <typename T, typename Term>
HWY_INLINE void sum_gradients(const BlockedShape& shape, const void* x, const float* mean,
                              const ChannelSums& sums, const Term& term) {
  clear(shape, sums);
  for_each_chunk(shape, [&](std::size_t at, std::size_t c, std::size_t pixels) HWY_ATTR {
    const Vec centre = loadu(mean + c);
    Vec products0 = hn::Zero(Tag());
    Vec products1 = products0;
    const Vec total = chunk_sum(pixels, [&](std::size_t p) HWY_ATTR {
      const std::size_t i = at + p * kBlock;
      const Vec value = load(typed<T>(x) + i);
      const Vec g = term(i, c, value);
      Vec& products = p % 2 == 0 ? products0 : products1;
      products = hn::MulAdd(g, hn::Sub(value, centre), products);
      return g;
    });
    add_to(sums.first + c, total);
    add_to(sums.second + c, hn::Add(products0, products1));
  });
}

template <typename T>
void gradient_sums(const BlockedShape& shape, const void* gradient, const void* x,
                   const float* mean, const ChannelSums& sums) {
  sum_gradients<T>(shape, x, mean, sums, [&](std::size_t i, std::size_t, Vec) HWY_ATTR {
    return load(typed<T>(gradient) + i);
  });
}

template <typename T, bool kHasAddend>
HWY_INLINE Vec total_gradient(const GradientWrite& to, std::size_t i) {
  const Vec g = load(typed<T>(to.out) + i);
  if constexpr (kHasAddend) {
    return hn::Add(g, load(typed<T>(to.addend) + i));
  } else {
    return g;
  }
}

template <typename T, bool kHasAddend>
void finish_masked(const BlockedShape& shape, const GradientWrite& to) {
  const auto stored = [&](std::size_t i, Vec g) HWY_ATTR {
    store(g, typed<T>(to.out) + i);
    return g;
  };
  if (to.mask == ReluMask::kAffine) {
    sum_gradients<T>(
        shape, to.x, to.mean, to.sums, [&](std::size_t i, std::size_t c, Vec x) HWY_ATTR {
          return stored(i,
                        masked_by_affine(total_gradient<T, kHasAddend>(to, i), x,
                                         loadu(to.affine.scale + c), loadu(to.affine.shift + c)));
        });
    return;
  }
  sum_gradients<T>(shape, to.x, to.mean, to.sums, [&](std::size_t i, std::size_t, Vec) HWY_ATTR {
    const auto active = hn::Gt(load(typed<T>(to.relu_output) + i), hn::Zero(Tag()));
    return stored(i, hn::IfThenElseZero(active, total_gradient<T, kHasAddend>(to, i)));
  });
}

template <typename T>
void add_in_place(const BlockedShape& shape, const GradientWrite& to) {
  for_each_plane(shape, [&](std::size_t at, std::size_t) HWY_ATTR {
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      store(total_gradient<T, true>(to, i), typed<T>(to.out) + i);
    }
  });
}

template <typename T>
void finish_gradient(const BlockedShape& shape, const GradientWrite& to) {
  const bool has_addend = to.addend != nullptr;
  if (to.mask != ReluMask::kNone) {
    has_addend ? finish_masked<T, true>(shape, to) : finish_masked<T, false>(shape, to);
  } else if (has_addend) {
    add_in_place<T>(shape, to);
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

template <typename T>
void input_gradient(const BlockedShape& shape, const void* gradient, const void* x,
                    const NormGradient& factors, void* dx) {
  for_each_plane(shape, [&](std::size_t at, std::size_t c) HWY_ATTR {
    const InputGradient input_gradient_of(factors, c);
    for (std::size_t i = at; i < at + shape.pixels * kBlock; i += kBlock) {
      store(input_gradient_of(load(typed<T>(gradient) + i), load(typed<T>(x) + i)),
            typed<T>(dx) + i);
    }
  });
}

template <typename T>
constexpr Kernels kTable{.block = kBlock,
                         .store_images = store_images<T>,
                         .moments = moments<T>,
                         .normalise_relu = normalise_relu<T>,
                         .normalise_add_relu = normalise_add_relu<T>,
                         .normalise_both_add_relu = normalise_both_add_relu<T>,
                         .finish_gradient = finish_gradient<T>,
                         .gradient_sums = gradient_sums<T>,
                         .input_gradient = input_gradient<T>};

}  // namespace

const Kernels& kernels() {
  return kTable<float>;
}

#if HWY_TARGET == HWY_AVX3
const Kernels& kernels_bf16() {
  return kTable<hwy::bfloat16_t>;
}
#endif

}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mayfly::nn::cpu {

const Kernels& kernels_for(Isa isa, Dtype dtype) {
  if (dtype == Dtype::kBf16) {
    ENSURE(isa == Isa::kAvx512, "bf16 needs AVX-512");
    return N_AVX3::kernels_bf16();
  }
  return for_isa(isa, N_AVX3::kernels, N_AVX2::kernels, HWY_STATIC_DISPATCH(kernels))();
}

}  // namespace mayfly::nn::cpu
#endif
