#pragma once

// Private to nn/cuda: which engines a device really runs. cuDNN may offer and plan an engine that
// then cannot be bound, or refuses its first run. That is found out once, before a worker says what
// it computes with, by running every convolution of the planned step; what is refused is planned
// anew. Whether an engine runs decides, never how fast, so equal machines come to the same. Pure:
// what touches a device is behind a Convolver.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "nn/cuda/engine_name.hpp"
#include "nn/cuda/engine_table.hpp"
#include "nn/cuda/step_executor.hpp"

namespace mayfly::nn::cuda {

/// A convolution of a plan that a device has refused to compute.
struct FailedConvolution {
  ConvKey key;
  std::string why;  ///< in the words of cuDNN
};

/// Gives each kind of convolution in a plan (shape and pass) to the stream, where it occurs first,
/// and returns those that could not be started, each once. `settle` waits for the stream after
/// each; a device that fails there has failed for good, so that is an error, which names the
/// convolution.
[[nodiscard]] Result<std::vector<FailedConvolution>> try_convolutions(
    const StepPlan& plan, const StepExecutor& executor, Convolver& convolver, Stream stream,
    const std::function<Result<void>()>& settle);

/// Plans a step, tries it, and plans it again without what was refused, until everything runs.
/// `plan` is given all refusals so far and must not choose them again, or fail. `try_all` returns
/// what the last plan was refused. Errors are theirs.
[[nodiscard]] Result<void> plan_what_runs(
    const std::function<Result<void>(const std::vector<EngineRefusal>&)>& plan,
    const std::function<Result<std::vector<EngineRefusal>>()>& try_all);

}  // namespace mayfly::nn::cuda
