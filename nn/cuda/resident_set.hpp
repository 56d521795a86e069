#pragma once

// Private to nn/cuda: brings a training set to the memory of a GPU.

#include "base/result.hpp"
#include "nn/cuda/kernels/kernels.hpp"
#include "nn/cuda/training_set.hpp"

namespace mayfly::nn::cuda {

/// Copies all images, and the table of their normalised values, to where the device has room for
/// them. On `stream`, from pageable memory: when it returns CUDA has taken everything. Fails as
/// reading does; kUnsupported if the device refuses.
[[nodiscard]] Result<void> copy_to_device(const TrainingSet& set, void* pixels, void* table,
                                          Stream stream);

}  // namespace mayfly::nn::cuda
