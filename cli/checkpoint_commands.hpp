#pragma once

// Checkpoints on disk, for the commands that read them.

#include <string>

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "nn/model.hpp"
#include "nn/model_state.hpp"

namespace mayfly::cli {

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

/// Loads and verifies a checkpoint; errors name the folder and the fault.
[[nodiscard]] Result<OpenCheckpoint> open_checkpoint(const std::string& path);

}  // namespace mayfly::cli
