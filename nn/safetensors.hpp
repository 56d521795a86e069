#pragma once

// The safetensors container (https://huggingface.co/docs/safetensors): an 8-byte little-endian
// header length, a JSON header {name: {dtype, shape, data_offsets}}, then the tensors' bytes. Pure.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace mayfly::nn {

/// One tensor of a container; a view of bytes that it does not own.
struct TensorView {
  std::string type;  ///< "F32", "I32", ...
  std::vector<std::int64_t> shape;
  ByteSpan bytes;
};

/// Tensors with their names, in the order in which they are stored.
struct NamedTensor {
  std::string name;
  TensorView tensor;
};

/// Upper limit of the JSON header, which has for each tensor some 130 bytes and its name.
inline constexpr std::size_t kSafetensorsHeaderBytesMax = std::size_t{16} << 20;

/// kInvalidInput, in one line, if no container can store a tensor of this name and shape: the name
/// is not UTF-8 or is reserved in the header, or there are too many dimensions.
[[nodiscard]] Result<void> check_storable(const std::string& name,
                                          const std::vector<std::int64_t>& shape);

/// Builds a container. Tensors must be storable, names distinct, each tensor's bytes must fit its
/// shape and type, and the header must keep its bound.
[[nodiscard]] Bytes encode_safetensors(const std::vector<NamedTensor>& tensors);

/// Reads a container; the views point into `file`. kCorrupt with the reason for any malformed
/// container: short file, bad JSON, a header over its bound, offsets outside the file or
/// overlapping, sizes that do not match shape and type.
[[nodiscard]] Result<std::map<std::string, TensorView>> decode_safetensors(ByteSpan file);

/// "[16, 3, 3, 3]", for messages.
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace mayfly::nn
