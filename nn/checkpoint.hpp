#pragma once

// Checkpoints: a folder `step-N` with model.safetensors (parameters and running statistics under
// torchvision-style names), optimizer.safetensors (momentum, exponents) and manifest.json (format
// version, model, classes, step, seed, digest of the state, XXH3 of each file, the job's
// fingerprint, and at the end XXH3 of everything before it in the manifest). Encoding and checking
// are pure (bytes in, bytes out); engine/run/checkpoint_store reads and writes the files.

#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"
#include "nn/checkpoint_files.hpp"
#include "nn/model.hpp"
#include "nn/model_state.hpp"

namespace mayfly::nn {

struct CheckpointInfo {
  std::string model;
  int classes = 0;
  Step committed{};
  std::uint64_t seed = 0;
  Digest digest;  ///< digest_of(state)
  std::vector<std::pair<std::string, std::string>> fingerprint;
};

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kManifestFile = "manifest.json";

[[nodiscard]] CheckpointFiles encode_checkpoint(
    const Model& model, const ModelState& state, std::uint64_t seed,
    const std::vector<std::pair<std::string, std::string>>& fingerprint);

/// A checkpoint of a state that is not of one of Mayfly's networks: adds the manifest, which is
/// made from `info` and the hashes of `files`. `info.classes` is 0.
[[nodiscard]] CheckpointFiles with_manifest(CheckpointFiles files, const CheckpointInfo& info);
/// The manifest of any checkpoint, after size and hash of all its files were compared with it.
/// kCorrupt with the file and the reason.
[[nodiscard]] Result<CheckpointInfo> check_files(const CheckpointFiles& files);

/// Reads only the manifest. kCorrupt with the reason if it is truncated, modified or of another
/// format. A manifest of an earlier build, which has no hash of itself, is accepted.
[[nodiscard]] Result<CheckpointInfo> decode_manifest(ByteSpan manifest);

/// Restores the state. kCorrupt for a truncated file or a wrong hash (with the file's name),
/// kInvalidInput for another model, a missing tensor or a wrong shape (with the tensor, the
/// expected and the actual shape).
[[nodiscard]] Result<ModelState> decode_checkpoint(const Model& model,
                                                   const CheckpointFiles& files);

}  // namespace mayfly::nn
