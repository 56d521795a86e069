#pragma once

#include <optional>
#include <string>

#include "base/digest.hpp"
#include "base/result.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/checkpoint.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

struct StartingState {
  nn::ModelState state;
  std::string remark;  ///< what the user should know about it; often empty
  /// Of the checkpoint that `state` was made of, as it was written; the state may differ, as the
  /// loss scale goes with fp16. Nothing without config.resume.
  std::optional<Digest> checkpoint;
  bool is_foreign = false;  ///< that checkpoint is of a job with other settings
};

/// The state a job starts from: that of config.resume; else the initial state of (model, seed),
/// with the weights of config.init_from if it is set. Errors name the file and what is wrong with
/// it: torn, another model, another reduction, changed since the job was prepared.
[[nodiscard]] Result<StartingState> starting_state(const Job& job, const ReductionLayout& layout);

/// That of a checkpoint: what a worker of this job takes part with. `path` is for error texts.
[[nodiscard]] Result<StartingState> state_of_checkpoint(const Job& job,
                                                        const ReductionLayout& layout,
                                                        const nn::CheckpointFiles& files,
                                                        const std::string& path);

/// The same, but weights that depend on the seed alone are not drawn yet: a worker that joins a job
/// which is under way never needs them.
[[nodiscard]] Result<StartingState> joining_state(const Job& job, const ReductionLayout& layout);

}  // namespace mayfly::engine
