#pragma once

#include "base/result.hpp"
#include "engine/job.hpp"
#include "engine/reduction_layout.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// The state a job starts from: that of config.resume, or the initial state of (model, seed).
/// Errors name the file and what is wrong with it: torn, another model, another reduction.
[[nodiscard]] Result<nn::ModelState> starting_state(const Job& job, const ReductionLayout& layout);

}  // namespace mayfly::engine
