#pragma once

// Where a fine-tuning job gets its weights: the setting init_from.

#include <string>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"
#include "nn/model.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

struct InitialWeights {
  std::string path;  ///< of the file or the checkpoint folder, "latest" resolved
  Bytes content;     ///< a weight file, see nn/weight_file.hpp

  /// What all workers' weights must agree in.
  [[nodiscard]] Digest digest() const { return digest_of(ByteSpan(content)); }
};

/// Reads what init_from names: a weight file, a checkpoint folder, or a run directory (its latest
/// checkpoint, whose model file must have the hash of its manifest). kNotFound, kCorrupt,
/// kInvalidInput (a checkpoint of another model than `model`), each with the path.
[[nodiscard]] Result<InitialWeights> read_initial_weights(const std::string& init_from,
                                                          const std::string& model);

/// Overwrites the parameters and statistics of a fresh initial state; a classifier of another class
/// count stays fresh. Returns one line that says what was done. kCorrupt or kInvalidInput with the
/// path, the tensor, and what was expected and found.
[[nodiscard]] Result<std::string> apply_initial_weights(const nn::Model& model,
                                                        const InitialWeights& weights,
                                                        nn::ModelState& state);

}  // namespace mayfly::engine
