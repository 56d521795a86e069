#pragma once

// The arithmetic of exact sums for one element and one block, in a form that both the CUDA compiler
// and the host's understand. The host's kernels (exact_sum, wrapped_sum) take factors and exponents
// from here; a GPU's kernels take everything, and a test on the CPU compares every bit of both. And
// the order of floats as integers, for reduce_kernels. Pure.

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.hpp"

namespace mayfly::collectives::exact_sum_math {

// exact_sum.hpp, which CUDA sources do not include, publishes these three as kExponentMin,
// kExponentMax and kUnsetExponent.
inline constexpr std::int32_t kLowestExponent = -90;
inline constexpr std::int32_t kHighestExponent = 128;
inline constexpr std::int32_t kNoExponent = kLowestExponent - 1;
inline constexpr std::uint32_t kInfinity = 0x7f800000U;
inline constexpr std::int32_t kOneNan = 0x7fc00000;

MAYFLY_HOST_DEVICE inline std::uint32_t pattern_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<std::uint32_t>(x);
#endif
}

MAYFLY_HOST_DEVICE inline float float_of(std::uint32_t pattern) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(pattern);
#else
  return std::bit_cast<float>(pattern);
#endif
}

/// The product, rounded to nearest even and never fused with what follows.
MAYFLY_HOST_DEVICE inline float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// The sum, rounded to nearest even and never fused with what came before.
MAYFLY_HOST_DEVICE inline float sum(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

/// The nearest integer, halves to even. A value outside of int32 (only after an overflow) becomes
/// an unspecified integer.
MAYFLY_HOST_DEVICE inline std::int32_t nearest(float x) {
#ifdef __CUDA_ARCH__
  return __float2int_rn(x);
#else
  constexpr float kLimit = 2147483648.0F;
  return x >= -kLimit && x < kLimit ? static_cast<std::int32_t>(std::nearbyint(x)) : INT32_MIN;
#endif
}

/// 2^power, for powers of normal floats.
MAYFLY_HOST_DEVICE inline float power_of_two(std::int32_t power) {
  return float_of(static_cast<std::uint32_t>(power + 127) << 23);
}

/// Orders like the magnitude; infinities and NaNs above everything.
MAYFLY_HOST_DEVICE inline std::uint32_t magnitude(float x) {
  return pattern_of(x) & 0x7fffffffU;
}

/// The factor from a gradient to units of the grid, given its block's exponent.
MAYFLY_HOST_DEVICE inline float scale_of(std::int32_t exponent, std::int32_t bits) {
  return power_of_two(bits - (exponent < kLowestExponent ? kLowestExponent : exponent));
}

MAYFLY_HOST_DEVICE inline std::int32_t quantize(float gradient, float scale) {
  return nearest(product(gradient, scale));
}

/// The sum of integers wraps around; it only does after an overflow.
MAYFLY_HOST_DEVICE inline std::int32_t add(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

/// Whether a block's largest magnitude does not fit its exponent.
MAYFLY_HOST_DEVICE inline bool overflows(std::uint32_t largest, std::int32_t exponent) {
  const std::uint32_t limit =
      exponent == kNoExponent ? 1U : static_cast<std::uint32_t>(exponent + 127) << 23;
  return largest >= limit;
}

MAYFLY_HOST_DEVICE inline bool is_nonfinite(std::uint32_t largest) {
  return largest >= kInfinity;
}

/// The smallest exponent above a magnitude.
MAYFLY_HOST_DEVICE inline std::int32_t exponent_above(std::uint32_t largest) {
  if (largest == 0) {
    return kNoExponent;
  }
  const std::int32_t exponent = static_cast<std::int32_t>(largest >> 23) - 126;
  const std::int32_t raised = exponent < kLowestExponent ? kLowestExponent : exponent;
  return raised > kHighestExponent ? kHighestExponent : raised;
}

/// The factor from a sum in units of the grid to its value times `scale`; zero instead of a
/// denormal, whose treatment depends on the modes of the thread.
MAYFLY_HOST_DEVICE inline float factor_of(std::int32_t exponent, std::int32_t bits, float scale) {
  const std::int32_t used = exponent < kLowestExponent ? kLowestExponent : exponent;
  const float factor = product(power_of_two(used - bits), scale);
  const std::uint32_t size = magnitude(factor);
  return size < 0x00800000U || size > kInfinity ? 0.0F : factor;
}

MAYFLY_HOST_DEVICE inline float dequantize(std::int32_t sum, float factor) {
#ifdef __CUDA_ARCH__
  return product(__int2float_rn(sum), factor);
#else
  return product(static_cast<float>(sum), factor);
#endif
}

/// Maps the pattern of a float to an integer that orders as the floats do, with -0 below +0 and one
/// NaN above all.
MAYFLY_HOST_DEVICE inline std::int32_t ordered(std::int32_t pattern) {
  const std::int32_t size = pattern & 0x7fffffff;
  if (size > static_cast<std::int32_t>(kInfinity)) {
    return kOneNan;
  }
  return pattern < 0 ? pattern ^ 0x7fffffff : pattern;
}

/// The inverse of ordered().
MAYFLY_HOST_DEVICE inline std::int32_t from_ordered(std::int32_t order) {
  return order < 0 ? order ^ 0x7fffffff : order;
}

}  // namespace mayfly::collectives::exact_sum_math
