#pragma once

// Private to nn/cuda/kernels: loads, stores and single operations, for the GPU and for the CPU. The
// kernels' files are compiled by either compiler, the CUDA compiler with -fmad=false and the host's
// with -ffp-contract=off, so that both do the operations that are written and no others.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/host_device.hpp"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#define MAYFLY_SIDE on_device
#else
#define MAYFLY_SIDE on_host
#endif

// One program may hold what both compilers made of these files; nothing may be mixed up by name.
namespace mayfly::nn::cuda::MAYFLY_SIDE {

/// bfloat16: the upper half of a float.
struct Bf16 {
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

/// Two floats as bfloat16, rounded to nearest even, the first in the lower half. A NaN becomes
/// 0x7fff, as the GPU's instruction has it.
MAYFLY_HOST_DEVICE inline std::uint32_t narrow_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
#else
  const auto narrow = [](float x) -> std::uint32_t {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return is_nan(x) ? 0x7fffU : (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  };
  return narrow(low) | narrow(high) << 16;
#endif
}

/// The 16 bytes that a thread moves at once.
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

MAYFLY_HOST_DEVICE inline Granule load_granule(const Bf16* from) {
  const Quad quad = load_quad(from);
  Granule out;
  for (int k = 0; k < 4; ++k) {
    out.value[2 * k] = float_of(quad.word[k] << 16);
    out.value[2 * k + 1] = float_of(quad.word[k] & 0xffff0000U);
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

MAYFLY_HOST_DEVICE inline void store_granule(const Granule& granule, Bf16* to) {
  Quad quad;
  for (int k = 0; k < 4; ++k) {
    quad.word[k] = narrow_pair(granule.value[2 * k], granule.value[2 * k + 1]);
  }
  store_quad(quad, to);
}

/// The values that store_granule() would leave in memory.
template <typename T>
MAYFLY_HOST_DEVICE inline Granule rounded(const Granule& granule) {
  Granule out = granule;
  if constexpr (sizeof(T) == sizeof(Bf16)) {
    for (int k = 0; k < 4; ++k) {
      const std::uint32_t pair = narrow_pair(granule.value[2 * k], granule.value[2 * k + 1]);
      out.value[2 * k] = float_of(pair << 16);
      out.value[2 * k + 1] = float_of(pair & 0xffff0000U);
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
MAYFLY_HOST_DEVICE inline void store_value(float value, Bf16* to) {
  to->bits = static_cast<std::uint16_t>(narrow_pair(value, 0.0F));
}

/// The ReLU of all our networks: a NaN stays one.
MAYFLY_HOST_DEVICE inline float relu(float x) {
  return x < 0.0F ? 0.0F : x;
}

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
