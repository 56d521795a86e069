#pragma once

// The state with which a job, or a worker of it, starts: the initial weights, those of --init-from,
// or a checkpoint. Any thread.

#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "nn/checkpoint.hpp"
#include "nn/model.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

struct StartingState {
  nn::ModelState state;
  std::string remark;  ///< a line for the user about it; often empty
  /// The digest in the checkpoint that `state` was read from. The digest of `state` may differ,
  /// because a loss scale is added or dropped. Nothing without config.resume.
  std::optional<Digest> checkpoint;
  bool is_foreign = false;  ///< that checkpoint is of a job with other settings
};

/// The state with which a job starts: that of config.resume; else the initial state of (model,
/// seed), with the weights of config.init_from if it is set. Errors name the file and what is wrong
/// with it: torn, another model, another reduction, changed since the job was prepared.
[[nodiscard]] Result<StartingState> starting_state(const Job& job, const ReductionLayout& layout);

/// The state of a checkpoint, for a worker that starts with it in this job. `path` is for error
/// texts.
[[nodiscard]] Result<StartingState> state_of_checkpoint(const Job& job,
                                                        const ReductionLayout& layout,
                                                        const nn::CheckpointFiles& files,
                                                        const std::string& path);

/// The same as starting_state(), but weights that depend only on the seed are not generated yet: a
/// worker that joins a running job never needs them.
[[nodiscard]] Result<StartingState> joining_state(const Job& job, const ReductionLayout& layout);

/// The state of a worker that will receive the job's state: step 0, and no weights yet.
[[nodiscard]] StartingState undrawn_state(const Job& job, const ReductionLayout& layout);

/// The question that a process that would start with this state sends to the coordinator.
[[nodiscard]] TransferQuestion question_about(const StartingState& start);

/// The weights of a fine-tuning job (the setting init_from).
struct InitialWeights {
  std::string path;  ///< of the file or the checkpoint folder, "latest" resolved
  Bytes content;     ///< a weight file, see nn/weight_file.hpp

  /// Equal on all workers.
  [[nodiscard]] Digest digest() const { return digest_of(ByteSpan(content)); }
};

/// Reads the weights that init_from names: a weight file, a checkpoint folder, or a run directory
/// (its newest checkpoint, or if that is damaged the newest intact one, with a warning). kNotFound,
/// kCorrupt, kInvalidInput (a checkpoint of another model than `model`), each with the path.
[[nodiscard]] Result<InitialWeights> read_initial_weights(const std::string& init_from,
                                                          const std::string& model);

/// Overwrites the parameters and statistics of a fresh initial state; a classifier of another class
/// count stays fresh. Returns a line for the user on what was loaded. kCorrupt or kInvalidInput
/// with the path, the tensor, and its expected and actual properties.
[[nodiscard]] Result<std::string> apply_initial_weights(const nn::Model& model,
                                                        const InitialWeights& weights,
                                                        nn::ModelState& state);

}  // namespace mayfly::engine
