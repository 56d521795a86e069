#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace mayfly::cli {

/// One tensor as a safetensors file describes it.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< for example "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

/// Reads the header of a safetensors file of any network. The entries are in the order of the
/// tensors' data in the file. kCorrupt if `file` is not a safetensors file.
[[nodiscard]] Result<std::vector<TensorEntry>> read_safetensors_header(ByteSpan file);

}  // namespace mayfly::cli
