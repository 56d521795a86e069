// Private to nn/cpu/winograd.cpp, compiled once per instruction set (Highway's "-inl.h"
// convention): weights to the 36 points, in the panels that the products read, and back.

#if defined(MAYFLY_WINOGRAD_WEIGHTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MAYFLY_WINOGRAD_WEIGHTS_INL
#undef MAYFLY_WINOGRAD_WEIGHTS_INL
#else
#define MAYFLY_WINOGRAD_WEIGHTS_INL
#endif

#include <hwy/highway.h>

#include "nn/cpu/winograd.hpp"
#include "nn/cpu/winograd_gemm-inl.hpp"
#include "nn/cpu/winograd_transforms-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

constexpr std::size_t kTaps = 9;  // weights of a kernel

/// The nine taps of a vector of kernels, `stride` floats apart, transformed to 36 points.
HWY_INLINE void transform_kernels(const float* weights, std::size_t stride, bool rotated, float* to,
                                  std::size_t point_stride) {
  const hn::RebindToSigned<Tag> index_tag;
  const auto index =
      hn::Mul(hn::Iota(index_tag, 0), hn::Set(index_tag, static_cast<std::int32_t>(stride)));
  Vec columns[3][6];
  for (std::size_t x = 0; x < 3; ++x) {
    Vec in[3];
    for (std::size_t y = 0; y < 3; ++y) {
      const std::size_t tap = 3 * y + x;
      in[y] = hn::GatherIndex(Tag(), weights + (rotated ? kTaps - 1 - tap : tap), index);
    }
    weight_transform(in, columns[x]);
  }
  for (std::size_t y = 0; y < 6; ++y) {
    const Vec in[3] = {columns[0][y], columns[1][y], columns[2][y]};
    Vec out[6];
    weight_transform(in, out);
    for (std::size_t x = 0; x < 6; ++x) {
      hn::Store(out[x], Tag(), to + (6 * y + x) * point_stride);
    }
  }
}

inline void transform_weights(const WinogradShape& shape, const float* weights,
                              float* transformed) {
  const std::size_t in = shape.in_channels;
  const std::size_t out = shape.out_channels;
  for (std::size_t k = 0; k < out; k += lanes()) {
    for (std::size_t c = 0; c < in; ++c) {
      transform_kernels(weights + (k * in + c) * kTaps, in * kTaps, false,
                        transformed + in_panels(c, k, in, out), shape.weight_stride());
    }
  }
}

inline void transform_weights_for_backward(const WinogradShape& shape, const float* weights,
                                           float* transformed) {
  const std::size_t in = shape.in_channels;
  const std::size_t out = shape.out_channels;
  for (std::size_t c = 0; c < in; c += lanes()) {
    for (std::size_t k = 0; k < out; ++k) {
      transform_kernels(weights + (k * in + c) * kTaps, kTaps, true,
                        transformed + in_panels(k, c, out, in), shape.weight_stride());
    }
  }
}

/// The sums at the 36 points, matrices [out channel][in channel] in panels, to the flat OIHW
/// gradient of the kernels of output channel `k` and a vector of input channels from `c`.
HWY_INLINE void finish_kernels(const WinogradShape& shape, const float* sums, std::size_t k,
                               std::size_t c, float* gradient) {
  const hn::RebindToSigned<Tag> index_tag;
  const auto index =
      hn::Mul(hn::Iota(index_tag, 0), hn::Set(index_tag, static_cast<std::int32_t>(kTaps)));
  const float* from = sums + in_panels(k, c, shape.out_channels, shape.in_channels);
  float* const to = gradient + (k * shape.in_channels + c) * kTaps;
  Vec columns[6][3];
  for (std::size_t x = 0; x < 6; ++x) {
    Vec in[6];
    for (std::size_t y = 0; y < 6; ++y) {
      in[y] = hn::Load(Tag(), from + (6 * y + x) * shape.weight_stride());
    }
    weight_gradient_transform(in, columns[x]);
  }
  for (std::size_t y = 0; y < 3; ++y) {
    const Vec in[6] = {columns[0][y], columns[1][y], columns[2][y],
                       columns[3][y], columns[4][y], columns[5][y]};
    Vec out[3];
    weight_gradient_transform(in, out);
    for (std::size_t x = 0; x < 3; ++x) {
      hn::ScatterIndex(out[x], Tag(), to + 3 * y + x, index);
    }
  }
}

HWY_INLINE void finish_weight_gradient(const WinogradShape& shape, const float* sums,
                                       float* gradient) {
  for (std::size_t c = 0; c < shape.in_channels; c += lanes()) {
    for (std::size_t k = 0; k < shape.out_channels; ++k) {
      finish_kernels(shape, sums, k, c, gradient);
    }
  }
}

}  // namespace
}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
