#pragma once

// Private to nn/cuda: whether a step fits into the memory of a GPU, and which one would. Pure.

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "nn/cuda/step_plan.hpp"

namespace mayfly::nn::cuda {

/// The largest microbatch, below `microbatch`, whose step needs at most `bytes`; 0 if none does.
/// The scratch memory of convolutions is assumed to be that in `options` for any size.
[[nodiscard]] std::uint32_t largest_fitting(const Model& model, std::uint32_t microbatch,
                                            const StepPlanOptions& options, std::size_t bytes);

/// The memory of a GPU when an engine is made.
struct GpuMemory {
  std::size_t free_bytes = 0;
  std::size_t sums_bytes = 0;  ///< of these, needed for sums of gradients beside the engine
};

/// Ok if a plan's memory fits beside the sums; else kUnsupported with a line that says how much is
/// needed, how much there is, and which microbatch would fit.
[[nodiscard]] Result<void> check_fit(const Model& model, std::uint32_t microbatch,
                                     const StepPlanOptions& options, const StepPlan& plan,
                                     const GpuMemory& memory);

/// The memory that a training set must leave free: CUDA and NCCL allocate memory of their own.
inline constexpr std::size_t kFreeBesideSet = std::size_t{1} << 30;

/// The plan that a GPU gets: with the training set of `options` in its memory if there is room for
/// that beside everything else, without it if not. Errors as check_fit, of the plan without a set.
[[nodiscard]] Result<StepPlan> make_fitting_plan(const Model& model, std::uint32_t microbatch,
                                                 StepPlanOptions options, const GpuMemory& memory);

}  // namespace mayfly::nn::cuda
