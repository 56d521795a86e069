#pragma once

// Element types of reductions, and the reduction of one vector into another. Pure functions; any
// thread.

#include <cstddef>

#include "base/check.hpp"

namespace mayfly::collectives {

/// Element type of a reduction. Sums of kFloat16 (IEEE binary16) and kBFloat16 are taken in fp32
/// and rounded to nearest even after each addition. Integer sums wrap around.
enum class DataType { kFloat32, kInt32, kInt64, kFloat16, kBFloat16, kInt16 };
/// How two elements become one.
enum class ReduceOp { kSum, kMax };

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kFloat32:
    case DataType::kInt32: return 4;
    case DataType::kInt64: return 8;
    case DataType::kFloat16:
    case DataType::kBFloat16:
    case DataType::kInt16: return 2;
  }
  UNREACHABLE("a DataType outside its enumerators");
}

/// dst[i] = dst[i] op src[i] for `count` elements of `type`; both aligned to the element, not
/// overlapping. Integer sums wrap around. The maximum of floats is a total order (-0 below +0) in
/// which any NaN wins and becomes one fixed NaN, so that it is the same bits in every order.
void reduce(void* dst, const void* src, std::size_t count, DataType type, ReduceOp op);

/// The reduction in a group of one member: changes nothing, except that a maximum replaces every
/// NaN by the fixed one, as in larger groups.
void reduce_alone(void* data, std::size_t count, DataType type, ReduceOp op);

}  // namespace mayfly::collectives
