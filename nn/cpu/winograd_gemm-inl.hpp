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
// Matrices of weights are stored in panels as wide as one row of such sums, so that they are read
// from front to back: [panel][row][column in panel].
HWY_INLINE std::size_t panel_width(std::size_t columns) {
  return columns % (2 * lanes()) == 0 ? 2 * lanes() : lanes();
}
/// Where element (row, column) of a matrix with `rows` rows is.
HWY_INLINE std::size_t in_panels(std::size_t row, std::size_t column, std::size_t rows,
                                 std::size_t columns) {
  const std::size_t width = panel_width(columns);
  return (column / width * rows + row) * width + column % width;
}

constexpr std::size_t kRowsOfOne = HWY_TARGET == HWY_AVX3 ? 16 : 8;
constexpr std::size_t kRowsOfTwo = HWY_TARGET == HWY_AVX3 ? 8 : 4;

/// out[r][:] = sum over c of in[r][c] * weights[c][:] for kRows rows and one panel of weights. kIn
/// is the number of input channels if it is known (else 0): then the rows' addresses are constants
/// relative to one register, while otherwise there are more addresses than registers.
template <std::size_t kRows, std::size_t kVectors, std::size_t kIn>
HWY_INLINE void multiply_tile(const float* in, std::size_t any_in_channels, const float* weights,
                              std::size_t out_channels, float* out) {
  const std::size_t in_channels = kIn != 0 ? kIn : any_in_channels;
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
      w[v] = hn::Load(Tag(), weights + (c * kVectors + v) * lanes());
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

template <std::size_t kIn>
HWY_INLINE void multiply_rows(const float* in, std::size_t rows, std::size_t in_channels,
                              const float* weights, std::size_t out_channels, float* out) {
  const std::size_t width = panel_width(out_channels);
  const std::size_t rows_at_once = width == lanes() ? kRowsOfOne : kRowsOfTwo;
  for (std::size_t k = 0; k < out_channels; k += width, weights += in_channels * width) {
    for (std::size_t r = 0; r < rows; r += rows_at_once) {
      const float* from = in + r * in_channels;
      float* const to = out + r * out_channels + k;
      if (width == lanes()) {
        multiply_tile<kRowsOfOne, 1, kIn>(from, in_channels, weights, out_channels, to);
      } else {
        multiply_tile<kRowsOfTwo, 2, kIn>(from, in_channels, weights, out_channels, to);
      }
    }
  }
}

/// out = in x weights (in panels); `rows` is rounded up to whole groups (the memory has room for
/// them).
HWY_INLINE void multiply(const float* in, std::size_t rows, std::size_t in_channels,
                         const float* weights, std::size_t out_channels, float* out) {
  switch (in_channels) {
    case 16: multiply_rows<16>(in, rows, 16, weights, out_channels, out); break;
    case 32: multiply_rows<32>(in, rows, 32, weights, out_channels, out); break;
    case 64: multiply_rows<64>(in, rows, 64, weights, out_channels, out); break;
    default: multiply_rows<0>(in, rows, in_channels, weights, out_channels, out); break;
  }
}

/// sums[k][:] += sum over rows of gradient[r][k] * in[r][:] for kRows values of k and one panel of
/// input channels.
template <std::size_t kRows, std::size_t kVectors>
HWY_INLINE void accumulate_tile(const float* gradient, std::size_t out_channels, const float* in,
                                std::size_t in_channels, std::size_t rows, float* to) {
  Vec sums[kRows][kVectors];
#pragma GCC unroll 16
  for (std::size_t k = 0; k < kRows; ++k) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      sums[k][v] = hn::Load(Tag(), to + (k * kVectors + v) * lanes());
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
      hn::Store(sums[k][v], Tag(), to + (k * kVectors + v) * lanes());
    }
  }
}

/// sums (in panels) += gradient^T x in, both with `rows` rows.
HWY_INLINE void accumulate_outer(const float* gradient, std::size_t out_channels, const float* in,
                                 std::size_t in_channels, std::size_t rows, float* sums) {
  const std::size_t width = panel_width(in_channels);
  const std::size_t rows_at_once = width == lanes() ? kRowsOfOne : kRowsOfTwo;
  for (std::size_t c = 0; c < in_channels; c += width) {
    for (std::size_t k = 0; k < out_channels; k += rows_at_once, sums += rows_at_once * width) {
      if (width == lanes()) {
        accumulate_tile<kRowsOfOne, 1>(gradient + k, out_channels, in + c, in_channels, rows, sums);
      } else {
        accumulate_tile<kRowsOfTwo, 2>(gradient + k, out_channels, in + c, in_channels, rows, sums);
      }
    }
  }
}

}  // namespace
}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
