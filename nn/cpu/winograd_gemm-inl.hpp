// Private to nn/cpu/winograd.cpp, compiled once per instruction set (Highway's "-inl.h"
// convention): the small dense products between the transforms.

#if defined(MAYFLY_WINOGRAD_GEMM_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MAYFLY_WINOGRAD_GEMM_INL
#undef MAYFLY_WINOGRAD_GEMM_INL
#else
#define MAYFLY_WINOGRAD_GEMM_INL
#endif

#include <hwy/highway.h>

#include "nn/cpu/block_vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

// Independent sums kept in registers: enough chains to hide the latency of a fused multiply-add (4
// cycles, two per cycle), as many as there are registers for. With two vectors per row each
// broadcast value is used twice.
constexpr std::size_t kRowsOfOne = HWY_TARGET == HWY_AVX3 ? 16 : 8;
constexpr std::size_t kRowsOfTwo = HWY_TARGET == HWY_AVX3 ? 8 : 4;

/// out[r][:] = sum over c of in[r][c] * weights[c][:] for kRows rows and kVectors vectors.
template <std::size_t kRows, std::size_t kVectors>
HWY_INLINE void multiply_tile(const float* in, std::size_t in_channels, const float* weights,
                              std::size_t out_channels, float* out) {
  Vec sums[kRows][kVectors];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Zero(Tag());
    }
  }
  for (std::size_t c = 0; c < in_channels; ++c) {
    Vec w[kVectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      w[v] = hn::Load(Tag(), weights + c * out_channels + v * lanes());
    }
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vec value = hn::Set(Tag(), in[r * in_channels + c]);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(value, w[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], Tag(), out + r * out_channels + v * lanes());
    }
  }
}

/// out = in x weights; `rows` is rounded up to whole groups (the memory has room for them).
HWY_INLINE void multiply(const float* in, std::size_t rows, std::size_t in_channels,
                         const float* weights, std::size_t out_channels, float* out) {
  std::size_t k = 0;
  for (; k + 2 * lanes() <= out_channels; k += 2 * lanes()) {
    for (std::size_t r = 0; r < rows; r += kRowsOfTwo) {
      multiply_tile<kRowsOfTwo, 2>(in + r * in_channels, in_channels, weights + k, out_channels,
                                   out + r * out_channels + k);
    }
  }
  for (; k < out_channels; k += lanes()) {
    for (std::size_t r = 0; r < rows; r += kRowsOfOne) {
      multiply_tile<kRowsOfOne, 1>(in + r * in_channels, in_channels, weights + k, out_channels,
                                   out + r * out_channels + k);
    }
  }
}

/// sums[k][:] += sum over rows of gradient[r][k] * in[r][:] for kRows values of k and kVectors
/// vectors of input channels.
template <std::size_t kRows, std::size_t kVectors>
HWY_INLINE void accumulate_tile(const float* gradient, std::size_t out_channels, const float* in,
                                std::size_t in_channels, std::size_t rows, float* to) {
  Vec sums[kRows][kVectors];
#pragma GCC unroll 16
  for (std::size_t k = 0; k < kRows; ++k) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      sums[k][v] = hn::Load(Tag(), to + k * in_channels + v * lanes());
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    Vec x[kVectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      x[v] = hn::Load(Tag(), in + r * in_channels + v * lanes());
    }
#pragma GCC unroll 16
    for (std::size_t k = 0; k < kRows; ++k) {
      const Vec g = hn::Set(Tag(), gradient[r * out_channels + k]);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[k][v] = hn::MulAdd(g, x[v], sums[k][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t k = 0; k < kRows; ++k) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      hn::Store(sums[k][v], Tag(), to + k * in_channels + v * lanes());
    }
  }
}

/// sums += gradient^T x in, both with `rows` rows.
HWY_INLINE void accumulate_outer(const float* gradient, std::size_t out_channels, const float* in,
                                 std::size_t in_channels, std::size_t rows, float* sums) {
  std::size_t c = 0;
  for (; c + 2 * lanes() <= in_channels; c += 2 * lanes()) {
    for (std::size_t k = 0; k < out_channels; k += kRowsOfTwo) {
      accumulate_tile<kRowsOfTwo, 2>(gradient + k, out_channels, in + c, in_channels, rows,
                                     sums + k * in_channels + c);
    }
  }
  for (; c < in_channels; c += lanes()) {
    for (std::size_t k = 0; k < out_channels; k += kRowsOfOne) {
      accumulate_tile<kRowsOfOne, 1>(gradient + k, out_channels, in + c, in_channels, rows,
                                     sums + k * in_channels + c);
    }
  }
}

}  // namespace
}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
