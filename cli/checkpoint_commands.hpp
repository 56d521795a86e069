#pragma once

// Checkpoints on disk, for the commands that read them.

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "nn/model.hpp"
#include "nn/model_state.hpp"

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

/// A checkpoint whose every hash, shape and digest has been verified.
struct OpenCheckpoint {
  engine::LoadedCheckpoint loaded;
  nn::Model model;
  nn::ModelState state;
};

/// The one positional argument of a command on checkpoints. kInvalidInput, with the command's name,
/// if there is none or more than one.
[[nodiscard]] Result<std::string> checkpoint_argument(const std::string& command,
                                                      const ParsedArguments& arguments);

/// Loads and verifies; errors name the folder and what is wrong with it.
[[nodiscard]] Result<OpenCheckpoint> open_checkpoint(const std::string& path);

}  // namespace mayfly::cli
