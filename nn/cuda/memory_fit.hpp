#pragma once

// Private to nn/cuda: whether a step fits into a GPU, and what to do if not. Pure.

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "nn/cuda/step_plan.hpp"

namespace mayfly::nn::cuda {

/// The largest microbatch, below `microbatch`, whose step needs at most `bytes`; 0 if none does.
/// Scratch of convolutions is taken to be what `options` say for any size.
[[nodiscard]] std::uint32_t largest_fitting(const Model& model, std::uint32_t microbatch,
                                            const StepPlanOptions& options, std::size_t bytes);

/// Ok if a plan's memory fits into `free_bytes`; else kUnsupported with a line that says how much
/// is needed, how much there is, and which microbatch would fit.
[[nodiscard]] Result<void> check_fit(const Model& model, std::uint32_t microbatch,
                                     const StepPlanOptions& options, const StepPlan& plan,
                                     std::size_t free_bytes);

}  // namespace mayfly::nn::cuda
