#include "collectives/plan/reduce_kernels.hpp"

#include <bit>
#include <cstdint>
#include <type_traits>

// Plain loops: the compiler vectorises them and they are bound by memory in any case.

namespace mayfly::collectives {
namespace {

template <typename T>
void add(T* __restrict dst, const T* __restrict src, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    dst[i] = static_cast<T>(dst[i] + src[i]);
  }
}

template <typename T>
void keep_larger(T* __restrict dst, const T* __restrict src, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    dst[i] = dst[i] < src[i] ? src[i] : dst[i];
  }
}

constexpr std::int32_t kMagnitudeMask = 0x7fffffff;
constexpr std::int32_t kInfinityPattern = 0x7f800000;
constexpr std::int32_t kCanonicalNan = 0x7fc00000;

// Maps float patterns to integers that order as the floats do, NaNs above all; its own inverse
// (except that all NaNs come back as one).
std::int32_t ordered(std::int32_t pattern) {
  const bool is_nan = (pattern & kMagnitudeMask) > kInfinityPattern;
  const std::int32_t flipped = pattern < 0 ? pattern ^ kMagnitudeMask : pattern;
  return is_nan ? kCanonicalNan : flipped;
}

void keep_larger(float* __restrict dst, const float* __restrict src, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t a = ordered(std::bit_cast<std::int32_t>(dst[i]));
    const std::int32_t b = ordered(std::bit_cast<std::int32_t>(src[i]));
    const std::int32_t larger = a < b ? b : a;
    dst[i] = std::bit_cast<float>(larger < 0 ? larger ^ kMagnitudeMask : larger);
  }
}

template <typename T>
void apply(void* dst, const void* src, std::size_t count, ReduceOp op) {
  if (op == ReduceOp::kMax) {
    keep_larger(static_cast<T*>(dst), static_cast<const T*>(src), count);
  } else if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;  // wraps, where signed overflow would be undefined
    add(static_cast<Unsigned*>(dst), static_cast<const Unsigned*>(src), count);
  } else {
    add(static_cast<T*>(dst), static_cast<const T*>(src), count);
  }
}

}  // namespace

void reduce(void* dst, const void* src, std::size_t count, DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kInt32: return apply<std::int32_t>(dst, src, count, op);
    case DataType::kInt64: return apply<std::int64_t>(dst, src, count, op);
    case DataType::kFloat32: return apply<float>(dst, src, count, op);
  }
}

}  // namespace mayfly::collectives
