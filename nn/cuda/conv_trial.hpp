#pragma once

// Private to nn/cuda: cuDNN's engines for a convolution, run and timed on a GPU.

#include <set>

#include "base/result.hpp"
#include "nn/cuda/engine_choice.hpp"

namespace mayfly::nn::cuda {

/// Each convolution by itself, on tensors of random numbers: all engines that cuDNN offers and
/// ConvPlan would take, at most `engines_max`; a fused pass together with our kernels that follow
/// it, behind its parts one by one. On the calling thread, which gets the request's device (a
/// number). kUnsupported, in one line, for whatever cuDNN or the device refuses.
[[nodiscard]] Result<void> time_on_device(const std::set<ConvKey>& convolutions,
                                          const EngineTimingRequest& request,
                                          const EngineTimingSink& take);

}  // namespace mayfly::nn::cuda
