// Private to nn/cpu/winograd.cpp, compiled once per instruction set (hence no usual include guard;
// see Highway's "-inl.h" convention): the four small transforms of F(4x4, 3x3).
//
// With d a 6x6 patch of the input, g a 3x3 kernel and y a 4x4 tile of the output:
//   y = A^T [ (G g G^T) * (B^T d B) ] A
// and, transposed, the gradient of g is G^T [ (A dy A^T) * (B^T d B) ] G.

#if defined(MAYFLY_WINOGRAD_TRANSFORMS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MAYFLY_WINOGRAD_TRANSFORMS_INL
#undef MAYFLY_WINOGRAD_TRANSFORMS_INL
#else
#define MAYFLY_WINOGRAD_TRANSFORMS_INL
#endif

#include <hwy/highway.h>

#include "nn/cpu/block_vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

/// out = B^T in, of six values. As many additions as fused multiply-adds: processors that have
/// units for each (Zen 4) then use both.
HWY_INLINE void input_transform(const Vec (&in)[6], Vec (&out)[6]) {
  const Vec four = hn::Set(Tag(), 4.0F);
  const Vec two = hn::Set(Tag(), 2.0F);
  const Vec even = hn::NegMulAdd(four, in[2], in[4]);
  const Vec odd = hn::NegMulAdd(four, in[1], in[3]);
  const Vec even2 = hn::Sub(in[4], in[2]);
  const Vec odd2 = hn::Sub(in[3], in[1]);
  out[0] = hn::MulAdd(four, hn::Sub(in[0], in[2]), even2);
  out[1] = hn::Add(even, odd);
  out[2] = hn::Sub(even, odd);
  out[3] = hn::MulAdd(two, odd2, even2);
  out[4] = hn::NegMulAdd(two, odd2, even2);
  out[5] = hn::NegMulAdd(four, odd2, hn::Sub(in[5], in[3]));
}

/// out = A^T in: six values to four.
HWY_INLINE void output_transform(const Vec (&in)[6], Vec (&out)[4]) {
  const Vec sum1 = hn::Add(in[1], in[2]);
  const Vec difference1 = hn::Sub(in[1], in[2]);
  const Vec sum2 = hn::Add(in[3], in[4]);
  const Vec difference2 = hn::Sub(in[3], in[4]);
  out[0] = hn::Add(in[0], hn::Add(sum1, sum2));
  out[1] = hn::MulAdd(hn::Set(Tag(), 2.0F), difference2, difference1);
  out[2] = hn::MulAdd(hn::Set(Tag(), 4.0F), sum2, sum1);
  out[3] = hn::Add(hn::MulAdd(hn::Set(Tag(), 8.0F), difference2, difference1), in[5]);
}

/// out = A in: four values to six.
HWY_INLINE void gradient_transform(const Vec (&in)[4], Vec (&out)[6]) {
  const Vec even = hn::Add(in[0], in[2]);
  const Vec odd = hn::Add(in[1], in[3]);
  const Vec even2 = hn::MulAdd(hn::Set(Tag(), 4.0F), in[2], in[0]);
  const Vec odd2 = hn::MulAdd(hn::Set(Tag(), 4.0F), in[3], in[1]);
  const Vec two = hn::Set(Tag(), 2.0F);
  out[0] = in[0];
  out[1] = hn::Add(even, odd);
  out[2] = hn::Sub(even, odd);
  out[3] = hn::MulAdd(two, odd2, even2);
  out[4] = hn::NegMulAdd(two, odd2, even2);
  out[5] = in[3];
}

/// out = G in: three values to six.
HWY_INLINE void weight_transform(const Vec (&in)[3], Vec (&out)[6]) {
  const Vec sixth = hn::Set(Tag(), -1.0F / 6.0F);
  const Vec ends = hn::Mul(sixth, hn::Add(in[0], in[2]));
  const Vec middle = hn::Mul(sixth, in[1]);
  out[0] = hn::Mul(hn::Set(Tag(), 0.25F), in[0]);
  out[1] = hn::Add(ends, middle);
  out[2] = hn::Sub(ends, middle);
  const Vec ends2 =
      hn::MulAdd(hn::Set(Tag(), 1.0F / 24.0F), in[0], hn::Mul(hn::Set(Tag(), 1.0F / 6.0F), in[2]));
  const Vec middle2 = hn::Mul(hn::Set(Tag(), 1.0F / 12.0F), in[1]);
  out[3] = hn::Add(ends2, middle2);
  out[4] = hn::Sub(ends2, middle2);
  out[5] = in[2];
}

/// out = G^T in: six values to three.
HWY_INLINE void weight_gradient_transform(const Vec (&in)[6], Vec (&out)[3]) {
  const Vec sixth = hn::Set(Tag(), 1.0F / 6.0F);
  const Vec sum1 = hn::Mul(sixth, hn::Add(in[1], in[2]));
  const Vec difference1 = hn::Mul(sixth, hn::Sub(in[2], in[1]));
  const Vec sum2 = hn::Add(in[3], in[4]);
  const Vec difference2 = hn::Sub(in[3], in[4]);
  out[0] = hn::MulAdd(hn::Set(Tag(), 0.25F), in[0],
                      hn::NegMulAdd(hn::Set(Tag(), -1.0F / 24.0F), sum2, hn::Neg(sum1)));
  out[1] = hn::MulAdd(hn::Set(Tag(), 1.0F / 12.0F), difference2, difference1);
  out[2] = hn::Add(hn::MulAdd(sixth, sum2, hn::Neg(sum1)), in[5]);
}

/// Six rows of pixels, each at the patch's first column, to the 36 points at `to`.
HWY_INLINE void transform_input_patch(const float* const (&rows)[6], float* to,
                                      std::size_t point_stride) {
  Vec columns[6][6];  // [column][row]
#pragma GCC unroll 6
  for (std::size_t x = 0; x < 6; ++x) {
    Vec in[6];
#pragma GCC unroll 6
    for (std::size_t y = 0; y < 6; ++y) {
      in[y] = hn::Load(Tag(), rows[y] + x * lanes());
    }
    input_transform(in, columns[x]);
  }
#pragma GCC unroll 6
  for (std::size_t y = 0; y < 6; ++y) {
    const Vec in[6] = {columns[0][y], columns[1][y], columns[2][y],
                       columns[3][y], columns[4][y], columns[5][y]};
    Vec out[6];
    input_transform(in, out);
#pragma GCC unroll 6
    for (std::size_t x = 0; x < 6; ++x) {
      hn::Store(out[x], Tag(), to + (6 * y + x) * point_stride);
    }
  }
}

/// The same patch's inner 4x4 pixels as an output gradient to the 36 points at `to`.
HWY_INLINE void transform_gradient_tile(const float* const (&rows)[6], float* to,
                                        std::size_t point_stride) {
  Vec columns[4][6];
#pragma GCC unroll 4
  for (std::size_t x = 0; x < 4; ++x) {
    Vec in[4];
#pragma GCC unroll 4
    for (std::size_t y = 0; y < 4; ++y) {
      in[y] = hn::Load(Tag(), rows[y + 1] + (x + 1) * lanes());
    }
    gradient_transform(in, columns[x]);
  }
#pragma GCC unroll 6
  for (std::size_t y = 0; y < 6; ++y) {
    const Vec in[4] = {columns[0][y], columns[1][y], columns[2][y], columns[3][y]};
    Vec out[6];
    gradient_transform(in, out);
#pragma GCC unroll 6
    for (std::size_t x = 0; x < 6; ++x) {
      hn::Store(out[x], Tag(), to + (6 * y + x) * point_stride);
    }
  }
}

/// 36 points to a tile of 4x4 pixels, [row][column].
HWY_INLINE void transform_output_tile(const float* points, std::size_t point_stride,
                                      Vec (&tile)[4][4]) {
  Vec columns[6][4];  // [column of points][row]
#pragma GCC unroll 6
  for (std::size_t x = 0; x < 6; ++x) {
    Vec in[6];
#pragma GCC unroll 6
    for (std::size_t y = 0; y < 6; ++y) {
      in[y] = hn::Load(Tag(), points + (6 * y + x) * point_stride);
    }
    output_transform(in, columns[x]);
  }
#pragma GCC unroll 4
  for (std::size_t y = 0; y < 4; ++y) {
    const Vec in[6] = {columns[0][y], columns[1][y], columns[2][y],
                       columns[3][y], columns[4][y], columns[5][y]};
    output_transform(in, tile[y]);
  }
}

}  // namespace
}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
