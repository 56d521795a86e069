#pragma once

// Private to nn/cuda: the step engine of one GPU. Weights come from the host when they change, and
// gradients go there part by part, while backward goes on: so a worker with a GPU is a worker like
// any other to the trainer and its groups. Or gradients stay, for sums in the device's memory, and
// weights and momentum with them (resident_state).
//
// On the device a step is a row of CUDA graphs, one for each segment of its plan. One stream
// computes, one copies finished gradients, one what somebody wants of the state.

#include <cstddef>
#include <memory>

#include "nn/cuda/engine_table.hpp"
#include "nn/cuda/training_set.hpp"
#include "nn/dtype.hpp"
#include "nn/model.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cuda {

struct CudaEngineOptions {
  int device = 0;
  bool is_shared = false;  ///< another worker uses the device, too
  Dtype dtype = Dtype::kFp32;
  std::size_t sums_bytes = 0;  ///< what the caller will allocate beside it, for sums of gradients
  bool keeps_state = false;    ///< momentum, too; then it has an optimizer()
  const TrainingSet* training_set = nullptr;  ///< to be on the device, if it fits; null: none
  const EngineTable* engines = nullptr;  ///< for convolutions; null: cuDNN's first choice for all
};

/// Builds the engine: plans the convolutions, allocates everything, runs a step of zeros once, and
/// records the graphs. Must be called, and the engine used, on the same thread. `model` must
/// outlive the engine. kInvalidInput for an impossible microbatch; kUnsupported, in one line, if
/// the device has too little memory, sums included (with what would fit), or refuses anything.
///
/// A device that fails later, in a step, is a worker's death: the engine says so on standard error
/// and aborts the process, and the job goes on without it.
[[nodiscard]] Result<std::unique_ptr<StepEngine>> make_cuda_engine(
    const Model& model, std::uint32_t microbatch, const CudaEngineOptions& options);

}  // namespace mayfly::nn::cuda
