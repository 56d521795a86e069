// Private to nn/cpu/winograd.cpp, compiled once per instruction set (Highway's "-inl.h"
// convention): copying rows of pixels into the buffer with the zero border, and taking the pixels
// of results out, with the operations of norm, ReLU and shortcut in the same pass.

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

// Sinks: the operations on the pixels of a row of tiles of one vector of channels, after the
// transform. A sink is made for each row. begin() receives a value similar to those that follow.
// pixel() receives one pixel and its place `at` from the row's first one, with different chains (0,
// 1) for neighbours in a whole tile, so that sums need not wait for each other. finish() receives
// the number of pixels.

/// Stores a convolution's output and computes its moments.
template <typename T>
class ActivationSink {
 public:
  HWY_INLINE ActivationSink(const ActivationWrite& to, const Plane& plane, std::size_t image,
                            std::size_t y)
      : out_(static_cast<T*>(to.out) + plane.row(image, y)) {}

  HWY_INLINE void begin(Vec similar) { pivot_ = similar; }

  HWY_INLINE void pixel(std::size_t at, Vec value, std::size_t chain) {
    store(value, out_ + at);
    const Vec centred = hn::Sub(value, pivot_);
    sums_[chain] = hn::Add(sums_[chain], value);
    squares_[chain] = hn::MulAdd(centred, centred, squares_[chain]);
  }

  HWY_INLINE void finish(std::size_t pixels, const ActivationWrite& to, std::size_t channel) {
    if (to.wants_moments) {
      add_moments(pixels, hn::Add(sums_[0], sums_[1]), pivot_, hn::Add(squares_[0], squares_[1]),
                  channel, to.moments);
    }
  }

 private:
  T* out_;
  Vec sums_[2] = {hn::Zero(Tag()), hn::Zero(Tag())};
  Vec squares_[2] = {hn::Zero(Tag()), hn::Zero(Tag())};  // of the distances from the pivot
  Vec pivot_ = hn::Zero(Tag());
};

/// Stores the gradient of a convolution's input: with the shortcut's part, masked, and summed.
template <typename T, ReluMask kMask, bool kHasAddend>
class GradientSink {
 public:
  HWY_INLINE GradientSink(const GradientWrite& to, const Plane& plane, std::size_t image,
                          std::size_t y)
      : out_(static_cast<T*>(to.out) + plane.row(image, y)) {
    const std::size_t first = plane.row(image, y);
    if constexpr (kHasAddend) {
      addend_ = static_cast<const T*>(to.addend) + first;
    }
    if constexpr (kMask == ReluMask::kPositive) {
      relu_output_ = static_cast<const T*>(to.relu_output) + first;
    }
    if constexpr (kMask == ReluMask::kAffine) {
      scale_ = hn::LoadU(Tag(), to.affine.scale + plane.channel);
      shift_ = hn::LoadU(Tag(), to.affine.shift + plane.channel);
    }
    if constexpr (kMask != ReluMask::kNone) {
      x_ = static_cast<const T*>(to.x) + first;
      mean_ = hn::LoadU(Tag(), to.mean + plane.channel);
    }
  }

  HWY_INLINE void begin(Vec) {}

  HWY_INLINE void pixel(std::size_t at, Vec gradient, std::size_t chain) {
    if constexpr (kHasAddend) {
      gradient = hn::Add(gradient, load(addend_ + at));
    }
    if constexpr (kMask == ReluMask::kNone) {
      store(gradient, out_ + at);
    } else {
      const Vec x = load(x_ + at);
      if constexpr (kMask == ReluMask::kPositive) {
        const auto active = hn::Gt(load(relu_output_ + at), hn::Zero(Tag()));
        gradient = hn::IfThenElseZero(active, gradient);
      } else {
        gradient = masked_by_affine(gradient, x, scale_, shift_);
      }
      store(gradient, out_ + at);
      sums_[chain] = hn::Add(sums_[chain], gradient);
      products_[chain] = hn::MulAdd(gradient, hn::Sub(x, mean_), products_[chain]);
    }
  }

  HWY_INLINE void finish(std::size_t, const GradientWrite& to, std::size_t channel) {
    if constexpr (kMask != ReluMask::kNone) {
      add_to(to.sums.first + channel, hn::Add(sums_[0], sums_[1]));
      add_to(to.sums.second + channel, hn::Add(products_[0], products_[1]));
    }
  }

 private:
  T* out_;
  const T* addend_ = nullptr;
  const T* relu_output_ = nullptr;
  const T* x_ = nullptr;
  Vec scale_ = hn::Zero(Tag());
  Vec shift_ = hn::Zero(Tag());
  Vec mean_ = hn::Zero(Tag());
  Vec sums_[2] = {hn::Zero(Tag()), hn::Zero(Tag())};
  Vec products_[2] = {hn::Zero(Tag()), hn::Zero(Tag())};
};

}  // namespace
}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
