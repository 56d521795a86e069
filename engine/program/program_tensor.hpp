#pragma once

// Tensors in the memory of a program.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "nn/safetensors.hpp"

namespace mayfly::engine {

/// Its memory belongs to the program, is contiguous, and stays where it is.
struct ProgramTensor {
  std::string name;
  std::string type;  ///< as in safetensors: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::byte* data = nullptr;
  std::size_t elements = 0;
  std::size_t bytes = 0;

  /// Whether the mean of changes is defined for its type. Buffers of other types are constants.
  [[nodiscard]] bool is_summable() const { return type == "F32" || type == "F64" || type == "I64"; }
  [[nodiscard]] ByteSpan content() const { return {data, bytes}; }
  [[nodiscard]] nn::NamedTensor view() const { return {name, {type, shape, content()}}; }
};

}  // namespace mayfly::engine
