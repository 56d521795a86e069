// Private to nn/cpu/winograd.cpp, compiled once per instruction set (Highway's "-inl.h"
// convention): bringing rows of pixels into the buffer with the zero border, and taking rows of
// results out, with everything that norm, ReLU and shortcut do to them on the way.

#if defined(MAYFLY_WINOGRAD_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MAYFLY_WINOGRAD_ROWS_INL
#undef MAYFLY_WINOGRAD_ROWS_INL
#else
#define MAYFLY_WINOGRAD_ROWS_INL
#endif

#include <hwy/highway.h>

#include "nn/cpu/block_vector-inl.hpp"
#include "nn/cpu/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

/// One vector of channels of all images of a square tensor.
struct Plane {
  std::size_t blocks;   // of channels
  std::size_t size;     // height = width
  std::size_t channel;  // first of the vector

  [[nodiscard]] HWY_INLINE std::size_t row(std::size_t image, std::size_t y) const {
    const std::size_t block = channel / kBlock;
    return ((image * blocks + block) * size + y) * size * kBlock + channel % kBlock;
  }
};

template <typename T>
HWY_INLINE void fill_row(const ActivationRead& from, const Plane& plane, std::size_t image,
                         std::size_t y, float* to) {
  const T* x = static_cast<const T*>(from.x) + plane.row(image, y);
  if (!from.through_norm) {
    for (std::size_t i = 0; i < plane.size; ++i) {
      hn::Store(load(x + i * kBlock), Tag(), to + i * lanes());
    }
    return;
  }
  const Vec scale = hn::LoadU(Tag(), from.affine.scale + plane.channel);
  const Vec shift = hn::LoadU(Tag(), from.affine.shift + plane.channel);
  for (std::size_t i = 0; i < plane.size; ++i) {
    hn::Store(relu(hn::MulAdd(load(x + i * kBlock), scale, shift)), Tag(), to + i * lanes());
  }
}

template <typename T>
HWY_INLINE void fill_row(const GradientRead& from, const Plane& plane, std::size_t image,
                         std::size_t y, float* to) {
  const std::size_t at = plane.row(image, y);
  const T* gradient = static_cast<const T*>(from.gradient) + at;
  if (!from.through_norm) {
    for (std::size_t i = 0; i < plane.size; ++i) {
      hn::Store(load(gradient + i * kBlock), Tag(), to + i * lanes());
    }
    return;
  }
  const T* x = static_cast<const T*>(from.x) + at;
  const Vec factor = hn::LoadU(Tag(), from.factors.gradient_factor + plane.channel);
  const Vec centred_factor = hn::LoadU(Tag(), from.factors.centred_factor + plane.channel);
  const Vec constant = hn::LoadU(Tag(), from.factors.constant + plane.channel);
  const Vec mean = hn::LoadU(Tag(), from.factors.mean + plane.channel);
  for (std::size_t i = 0; i < plane.size; ++i) {
    const Vec centred = hn::Sub(load(x + i * kBlock), mean);
    const Vec inner = hn::MulAdd(centred_factor, centred, constant);
    hn::Store(hn::MulAdd(factor, load(gradient + i * kBlock), inner), Tag(), to + i * lanes());
  }
}

/// The valid pixels of a row of tiles, after the transform.
struct Strip {
  const float* pixels;
  std::size_t row_stride;  // in floats
  std::size_t rows;
  std::size_t width;

  [[nodiscard]] HWY_INLINE const float* at(std::size_t y, std::size_t x) const {
    return pixels + y * row_stride + x * lanes();
  }
};

/// Calls visit(y, x, chain) for all pixels; neighbours have different chains (0, 1), so that sums
/// need not wait for each other.
template <typename Visit>
HWY_INLINE void for_each_pixel(const Strip& strip, const Visit& visit) {
  for (std::size_t y = 0; y < strip.rows; ++y) {
    std::size_t x = 0;
    for (; x + 2 <= strip.width; x += 2) {
      visit(y, x, 0);
      visit(y, x + 1, 1);
    }
    if (x < strip.width) {
      visit(y, x, 0);
    }
  }
}

HWY_INLINE void add_strip_moments(const Strip& strip, Vec sum, std::size_t channel,
                                  const ChannelSums& to) {
  const std::size_t pixels = strip.rows * strip.width;
  const Vec mean = hn::Mul(sum, hn::Set(Tag(), 1.0F / static_cast<float>(pixels)));
  Vec centred[2] = {hn::Zero(Tag()), hn::Zero(Tag())};
  for_each_pixel(strip, [&](std::size_t y, std::size_t x, int chain) HWY_ATTR {
    const Vec d = hn::Sub(hn::Load(Tag(), strip.at(y, x)), mean);
    centred[chain] = hn::MulAdd(d, d, centred[chain]);
  });
  add_moments(pixels, sum, mean, hn::Add(centred[0], centred[1]), channel, to);
}

template <typename T>
HWY_INLINE void drain(const Strip& strip, const Plane& plane, std::size_t image, std::size_t y0,
                      const ActivationWrite& to) {
  T* out = static_cast<T*>(to.out) + plane.row(image, y0);
  const std::size_t out_stride = plane.size * kBlock;
  Vec sums[2] = {hn::Zero(Tag()), hn::Zero(Tag())};
  for_each_pixel(strip, [&](std::size_t y, std::size_t x, int chain) HWY_ATTR {
    const Vec value = hn::Load(Tag(), strip.at(y, x));
    store(value, out + y * out_stride + x * kBlock);
    sums[chain] = hn::Add(sums[chain], value);
  });
  if (to.wants_moments) {
    add_strip_moments(strip, hn::Add(sums[0], sums[1]), plane.channel, to.moments);
  }
}

/// `masked(at, gradient, x)` is the gradient through the ReLU.
template <typename T, typename Masked>
HWY_INLINE void drain_masked(const Strip& strip, const Plane& plane, std::size_t first,
                             const GradientWrite& to, const Masked& masked) {
  const std::size_t stride = plane.size * kBlock;
  const Vec mean = hn::LoadU(Tag(), to.mean + plane.channel);
  Vec sums[2] = {hn::Zero(Tag()), hn::Zero(Tag())};
  Vec products[2] = {hn::Zero(Tag()), hn::Zero(Tag())};
  for_each_pixel(strip, [&](std::size_t y, std::size_t x, int chain) HWY_ATTR {
    const std::size_t at = first + y * stride + x * kBlock;
    const Vec value = load(static_cast<const T*>(to.x) + at);
    const Vec g = masked(at, hn::Load(Tag(), strip.at(y, x)), value);
    store(g, static_cast<T*>(to.out) + at);
    sums[chain] = hn::Add(sums[chain], g);
    products[chain] = hn::MulAdd(g, hn::Sub(value, mean), products[chain]);
  });
  add_to(to.sums.first + plane.channel, hn::Add(sums[0], sums[1]));
  add_to(to.sums.second + plane.channel, hn::Add(products[0], products[1]));
}

template <typename T>
HWY_INLINE void drain_unmasked(const Strip& strip, const Plane& plane, std::size_t first,
                               const GradientWrite& to) {
  const std::size_t stride = plane.size * kBlock;
  for_each_pixel(strip, [&](std::size_t y, std::size_t x, int) HWY_ATTR {
    const std::size_t at = first + y * stride + x * kBlock;
    Vec g = hn::Load(Tag(), strip.at(y, x));
    if (to.addend != nullptr) {
      g = hn::Add(g, load(static_cast<const T*>(to.addend) + at));
    }
    store(g, static_cast<T*>(to.out) + at);
  });
}

template <typename T, bool kHasAddend>
HWY_INLINE void drain_positive(const Strip& strip, const Plane& plane, std::size_t first,
                               const GradientWrite& to) {
  drain_masked<T>(strip, plane, first, to, [&](std::size_t at, Vec g, Vec) HWY_ATTR {
    if constexpr (kHasAddend) {
      g = hn::Add(g, load(static_cast<const T*>(to.addend) + at));
    }
    const auto active = hn::Gt(load(static_cast<const T*>(to.relu_output) + at), hn::Zero(Tag()));
    return hn::IfThenElseZero(active, g);
  });
}

template <typename T, bool kHasAddend>
HWY_INLINE void drain_affine(const Strip& strip, const Plane& plane, std::size_t first,
                             const GradientWrite& to) {
  const Vec scale = hn::LoadU(Tag(), to.affine.scale + plane.channel);
  const Vec shift = hn::LoadU(Tag(), to.affine.shift + plane.channel);
  drain_masked<T>(strip, plane, first, to, [&](std::size_t at, Vec g, Vec x) HWY_ATTR {
    if constexpr (kHasAddend) {
      g = hn::Add(g, load(static_cast<const T*>(to.addend) + at));
    }
    return masked_by_affine(g, x, scale, shift);
  });
}

template <typename T>
HWY_INLINE void drain(const Strip& strip, const Plane& plane, std::size_t image, std::size_t y0,
                      const GradientWrite& to) {
  const std::size_t first = plane.row(image, y0);
  const bool has_addend = to.addend != nullptr;
  switch (to.mask) {
    case ReluMask::kNone: drain_unmasked<T>(strip, plane, first, to); break;
    case ReluMask::kAffine:
      has_addend ? drain_affine<T, true>(strip, plane, first, to)
                 : drain_affine<T, false>(strip, plane, first, to);
      break;
    case ReluMask::kPositive:
      has_addend ? drain_positive<T, true>(strip, plane, first, to)
                 : drain_positive<T, false>(strip, plane, first, to);
      break;
  }
}

}  // namespace
}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
