#pragma once

// Private to nn/cuda/kernels: loads, stores and single operations, for the GPU and for the CPU. The
// kernels' files are compiled by both compilers, the CUDA compiler with -fmad=false and the host's
// with -ffp-contract=off, so that both do exactly the operations that are written.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/host_device.hpp"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define MAYFLY_SIDE on_device
#else
#define MAYFLY_SIDE on_host
#endif

// A program may contain the code of both compilers, so their symbols must not have the same names.
namespace mayfly::nn::cuda::MAYFLY_SIDE {

/// bfloat16: the upper half of a float.
struct Bf16 {
  std::uint16_t bits;
};

/// IEEE 754 binary16, subnormal numbers included.
struct Fp16 {
  std::uint16_t bits;
};

MAYFLY_HOST_DEVICE inline float float_of(std::uint32_t pattern) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(pattern);
#else
  return std::bit_cast<float>(pattern);
#endif
}

/// a * b + c, rounded once.
MAYFLY_HOST_DEVICE inline float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

MAYFLY_HOST_DEVICE inline bool is_nan(float x) {
  return x != x;
}

MAYFLY_HOST_DEVICE inline float widen(float x) {
  return x;
}
MAYFLY_HOST_DEVICE inline float widen(Bf16 x) {
  return float_of(static_cast<std::uint32_t>(x.bits) << 16);
}
// Every binary16 is a float, so there is only one correct result, also of the GPU's instruction.
MAYFLY_HOST_DEVICE inline float widen(Fp16 x) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(x.bits));
#else
  const std::uint32_t sign = (x.bits & 0x8000U) << 16;
  const std::uint32_t rest = x.bits & 0x7fffU;
  if (rest < 0x0400U) {  // zero, or a multiple of the smallest number
    return float_of(sign | std::bit_cast<std::uint32_t>(static_cast<float>(rest) * 0x1p-24F));
  }
  // The exponent's offset is 15 in binary16 and 127 in a float; infinities and NaNs have the
  // largest exponent of either.
  const std::uint32_t offset = rest < 0x7c00U ? 127U - 15U : 255U - 31U;
  return float_of(sign | ((rest << 13) + (offset << 23)));
#endif
}

#ifndef __CUDA_ARCH__
/// Like the GPU's instructions: rounds to nearest even, a NaN becomes 0x7fff.
inline std::uint32_t narrow(float x, Bf16 /*to*/) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return is_nan(x) ? 0x7fffU : (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
}
/// The same; a value that is too large becomes an infinity.
inline std::uint32_t narrow(float x, Fp16 /*to*/) {
  constexpr std::uint32_t kNormal = 0x38800000U;    // 2^-14
  constexpr std::uint32_t kInfinite = 0x477ff000U;  // 65520: half a unit above the largest number
  constexpr std::uint32_t kOffset = (127U - 15U) << 23;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t rest = bits & 0x7fffffffU;
  if (is_nan(x)) {
    return 0x7fffU;
  }
  if (rest >= kInfinite) {
    return sign | 0x7c00U;
  }
  if (rest >= kNormal) {
    return sign | ((rest - kOffset + 0x0fffU + ((rest >> 13) & 1U)) >> 13);
  }
  // A multiple of 2^-24, the smallest number: the remaining fraction is shifted down.
  const std::uint32_t shift = 126U - (rest >> 23);
  if (shift > 24U) {
    return sign;  // below half of the smallest number
  }
  const std::uint32_t fraction = (rest & 0x007fffffU) | 0x00800000U;
  const std::uint32_t half = 1U << (shift - 1);
  return sign | ((fraction + half - 1 + ((fraction >> shift) & 1U)) >> shift);
}
#endif

/// Two floats as T, rounded to nearest even, the first in the lower half. A NaN becomes 0x7fff.
template <typename T>
MAYFLY_HOST_DEVICE inline std::uint32_t narrow_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  std::uint32_t bits;
  if constexpr (std::is_same_v<T, Bf16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &pair, sizeof bits);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&bits, &pair, sizeof bits);
  }
  return bits;
#else
  return narrow(low, T{}) | narrow(high, T{}) << 16;
#endif
}

/// The inverse of narrow_pair(), for the rounded values.
template <typename T>
MAYFLY_HOST_DEVICE inline void widen_pair(std::uint32_t pair, float& low, float& high) {
  low = widen(T{static_cast<std::uint16_t>(pair)});
  high = widen(T{static_cast<std::uint16_t>(pair >> 16)});
}

/// The 16 bytes that a thread loads or stores at once.
struct alignas(16) Quad {
  std::uint32_t word[4];
};

MAYFLY_HOST_DEVICE inline Quad load_quad(const void* from) {
#ifdef __CUDA_ARCH__
  const uint4 loaded = *static_cast<const uint4*>(from);
  return {{loaded.x, loaded.y, loaded.z, loaded.w}};
#else
  Quad quad;
  std::memcpy(&quad, from, sizeof quad);
  return quad;
#endif
}

MAYFLY_HOST_DEVICE inline void store_quad(const Quad& quad, void* to) {
#ifdef __CUDA_ARCH__
  *static_cast<uint4*>(to) = make_uint4(quad.word[0], quad.word[1], quad.word[2], quad.word[3]);
#else
  std::memcpy(to, &quad, sizeof quad);
#endif
}

/// Neighbouring channels that one thread works on: a byte of a mask.
inline constexpr std::uint32_t kGranule = 8;

struct Granule {
  float value[kGranule];
};

MAYFLY_HOST_DEVICE inline std::uint32_t pattern_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<std::uint32_t>(x);
#endif
}

MAYFLY_HOST_DEVICE inline Granule load_granule(const float* from) {
  const Quad low = load_quad(from);
  const Quad high = load_quad(from + 4);
  Granule out;
  for (int k = 0; k < 4; ++k) {
    out.value[k] = float_of(low.word[k]);
    out.value[k + 4] = float_of(high.word[k]);
  }
  return out;
}

template <typename T>
MAYFLY_HOST_DEVICE inline Granule load_granule(const T* from) {
  const Quad quad = load_quad(from);
  Granule out;
  for (int k = 0; k < 4; ++k) {
    widen_pair<T>(quad.word[k], out.value[2 * k], out.value[2 * k + 1]);
  }
  return out;
}

MAYFLY_HOST_DEVICE inline void store_granule(const Granule& granule, float* to) {
  Quad low;
  Quad high;
  for (int k = 0; k < 4; ++k) {
    low.word[k] = pattern_of(granule.value[k]);
    high.word[k] = pattern_of(granule.value[k + 4]);
  }
  store_quad(low, to);
  store_quad(high, to + 4);
}

template <typename T>
MAYFLY_HOST_DEVICE inline void store_granule(const Granule& granule, T* to) {
  Quad quad;
  for (int k = 0; k < 4; ++k) {
    quad.word[k] = narrow_pair<T>(granule.value[2 * k], granule.value[2 * k + 1]);
  }
  store_quad(quad, to);
}

/// The values that store_granule() would leave in memory.
template <typename T>
MAYFLY_HOST_DEVICE inline Granule rounded(const Granule& granule) {
  Granule out = granule;
  if constexpr (!std::is_same_v<T, float>) {
    for (int k = 0; k < 4; ++k) {
      const std::uint32_t pair = narrow_pair<T>(granule.value[2 * k], granule.value[2 * k + 1]);
      widen_pair<T>(pair, out.value[2 * k], out.value[2 * k + 1]);
    }
  }
  return out;
}

/// Zeros where a bit of the mask is not set.
MAYFLY_HOST_DEVICE inline void keep_masked(Granule& granule, std::uint32_t mask) {
  for (std::uint32_t k = 0; k < kGranule; ++k) {
    granule.value[k] = (mask >> k & 1U) != 0 ? granule.value[k] : 0.0F;
  }
}

MAYFLY_HOST_DEVICE inline void store_value(float value, float* to) {
  *to = value;
}
template <typename T>
MAYFLY_HOST_DEVICE inline void store_value(float value, T* to) {
  to->bits = static_cast<std::uint16_t>(narrow_pair<T>(value, 0.0F));
}

/// The ReLU of all our networks: a NaN stays one.
MAYFLY_HOST_DEVICE inline float relu(float x) {
  return x < 0.0F ? 0.0F : x;
}

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
