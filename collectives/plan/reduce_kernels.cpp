#include "collectives/plan/reduce_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/plan/exact_sum_math.hpp"
#include "collectives/plan/half_floats.hpp"

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

void keep_larger(float* __restrict dst, const float* __restrict src, std::size_t count) {
  using namespace exact_sum_math;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t a = ordered(std::bit_cast<std::int32_t>(dst[i]));
    const std::int32_t b = ordered(std::bit_cast<std::int32_t>(src[i]));
    dst[i] = std::bit_cast<float>(from_ordered(a < b ? b : a));
  }
}

constexpr std::int32_t kHalfMask = 0x7fff;
constexpr std::int32_t kFp16Infinity = 0x7c00;
constexpr std::int32_t kBf16Infinity = 0x7f80;

// As ordered(), for patterns of 16-bit floats. The NaN that all become has every magnitude bit set.
std::int32_t ordered_half(std::uint16_t pattern, std::int32_t infinity) {
  const std::int32_t wide = static_cast<std::int16_t>(pattern);
  const bool is_nan = (wide & kHalfMask) > infinity;
  const std::int32_t flipped = wide < 0 ? wide ^ kHalfMask : wide;
  return is_nan ? kHalfMask : flipped;
}

void keep_larger_half(std::span<std::uint16_t> dst, std::span<const std::uint16_t> src,
                      std::int32_t infinity) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const std::int32_t larger =
        std::max(ordered_half(dst[i], infinity), ordered_half(src[i], infinity));
    dst[i] = static_cast<std::uint16_t>(larger < 0 ? larger ^ kHalfMask : larger);
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

void apply_half(void* dst, const void* src, std::size_t count, DataType type, ReduceOp op) {
  const std::span to(static_cast<std::uint16_t*>(dst), count);
  const std::span from(static_cast<const std::uint16_t*>(src), count);
  if (op == ReduceOp::kMax) {
    keep_larger_half(to, from, type == DataType::kFloat16 ? kFp16Infinity : kBf16Infinity);
  } else if (type == DataType::kFloat16) {
    add_fp16(to, from);
  } else {
    add_bf16(to, from);
  }
}

}  // namespace

void reduce(void* dst, const void* src, std::size_t count, DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kInt32: return apply<std::int32_t>(dst, src, count, op);
    case DataType::kInt64: return apply<std::int64_t>(dst, src, count, op);
    case DataType::kFloat32: return apply<float>(dst, src, count, op);
    case DataType::kInt16: return apply<std::int16_t>(dst, src, count, op);
    case DataType::kFloat16:
    case DataType::kBFloat16: return apply_half(dst, src, count, type, op);
  }
}

void reduce_alone(void* data, std::size_t count, DataType type, ReduceOp op) {
  const bool has_nans =
      type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBFloat16;
  if (op == ReduceOp::kMax && has_nans && count > 0) {
    std::vector<std::byte> copy(count * size_of(type));
    std::memcpy(copy.data(), data, copy.size());
    reduce(data, copy.data(), count, type, op);
  }
}

}  // namespace mayfly::collectives
