#pragma once

#include <cstddef>

#include "base/check.hpp"

namespace mayfly::collectives {

/// Element type of a reduction.
enum class DataType { kFloat32, kInt32, kInt64 };
/// How two elements become one.
enum class ReduceOp { kSum, kMax };

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kFloat32:
    case DataType::kInt32: return 4;
    case DataType::kInt64: return 8;
  }
  UNREACHABLE("a DataType outside its enumerators");
}

}  // namespace mayfly::collectives
