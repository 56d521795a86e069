#pragma once

// Private to nn/cuda: the step engine of one GPU. Weights are copied from the host when they
// change, and gradients are copied there part by part while the backward pass continues, so that
// the trainer and its groups need not know about the device. Or gradients stay in the device's
// memory for sums there, together with weights and momentum (resident_state).
//
// On the device a step is a row of CUDA graphs, one for each segment of its plan. One stream
// computes, one copies finished gradients, one copies the parts of the state that the host fetches.

#include <memory>

#include "nn/cuda/cuda_module.hpp"
#include "nn/cuda/device_choice.hpp"

namespace mayfly::nn::cuda {

/// Builds the engine: plans the convolutions, allocates everything, runs a step of zeros once, and
/// records the graphs. Must be called, and the engine used, on the same thread. `model` must
/// outlive the engine, which keeps the claim. kInvalidInput for an impossible microbatch;
/// kUnsupported, in one line, if the device has too little memory, sums included (with the
/// microbatch that would fit), or refuses anything.
///
/// If the device fails later, in a step, the engine reports it on standard error and aborts the
/// process, and the job continues without this worker.
[[nodiscard]] Result<std::unique_ptr<DeviceEngine>> make_cuda_engine(const Model& model,
                                                                     const EngineRequest& request,
                                                                     ChosenDevice device);

}  // namespace mayfly::nn::cuda
