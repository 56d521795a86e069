#pragma once

// Tensors in the memory of a program, which it registers before its job begins.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/safetensors.hpp"

namespace mayfly::engine {

/// A tensor whose memory belongs to the program, is contiguous, and does not move.
struct ProgramTensor {
  std::string name;
  std::string type;  ///< as in safetensors: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::byte* data = nullptr;
  std::size_t elements = 0;
  std::size_t bytes = 0;

  /// Whether the changes of its elements have a mean. Buffers of other types are constants.
  [[nodiscard]] bool is_summable() const { return type == "F32" || type == "F64" || type == "I64"; }
  [[nodiscard]] ByteSpan content() const { return {data, bytes}; }
  [[nodiscard]] nn::NamedTensor view() const { return {name, {type, shape, content()}}; }
};

/// The tensors and names that a program registers before its job begins.
struct ProgramTensors {
  std::vector<ProgramTensor> parameters;  ///< of any type; their gradients are of 32 bits
  std::vector<ProgramTensor> buffers;     ///< constants, unless ProgramTensor::is_summable()
  std::vector<std::string> metrics{};     ///< names of metrics whose means are recorded

  /// The weight of a microbatch has a padded slot, like its loss.
  static constexpr std::size_t kWeightElements = ReductionLayout::kLossElements;

  /// The tensors that the reduction of a step sums. The last statistic is the weight of a
  /// microbatch; the gradients of the last parameter are ready first.
  [[nodiscard]] SummedTensors summed() const;
  /// Names of the parts of ProgramState::part_hashes().
  [[nodiscard]] std::vector<std::string> part_names() const;
  /// The digest of names, types and shapes.
  [[nodiscard]] Digest layout_digest() const;
  /// The digest of the content.
  [[nodiscard]] Digest content_digest() const;
};

}  // namespace mayfly::engine
