#pragma once

// Private to nn/cuda: the step that a GPU is given: its convolutions by engines that this GPU
// really runs, its plan, its memory, and who carries it out.

#include <cudnn.h>

#include <cstdint>
#include <optional>

#include "base/result.hpp"
#include "nn/cuda/cuda_engine.hpp"
#include "nn/cuda/cuda_handles.hpp"
#include "nn/cuda/cudnn_convolver.hpp"
#include "nn/cuda/step_executor.hpp"
#include "nn/cuda/step_plan.hpp"

namespace mayfly::nn::cuda {

/// Its parts refer to each other, so it stays where it is. One thread at a time.
class RunningStep {
 public:
  RunningStep() = default;
  RunningStep(const RunningStep&) = delete;
  RunningStep& operator=(const RunningStep&) = delete;

  /// Plans, allocates and tries every convolution once, on zeros; what the device refuses is
  /// planned anew (nn/cuda/step_trial.hpp). Nothing is timed. `handle` is set to `stream`; both
  /// outlive the step. kUnsupported, in one line, if the device has too little memory, refuses all
  /// engines of a convolution, or fails.
  [[nodiscard]] Result<void> prepare(const Model& model, std::uint32_t microbatch,
                                     const CudaEngineOptions& options, cudnnHandle_t handle,
                                     cudaStream_t stream);

  ConvPlans conv_plans;
  StepPlan plan;
  std::optional<CudnnConvolver> convolver;
  std::optional<StepExecutor> executor;

 private:
  Result<void> make(const Model& model, std::uint32_t microbatch, const CudaEngineOptions& options,
                    cudnnHandle_t handle, const std::vector<EngineRefusal>& refused);
  Result<std::vector<EngineRefusal>> try_all(cudaStream_t stream);

  DeviceMemory memory_;
};

}  // namespace mayfly::nn::cuda
