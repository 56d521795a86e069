#pragma once

// Private to nn/cuda: what travels between host and device, in pinned memory, beside images of
// training (device_feed) and gradients (gradient_copy).

#include <cstdint>

#include "nn/cuda/cuda_handles.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cuda {

struct Staging {
  PinnedMemory images;  ///< of evaluation
  PinnedMemory draws, labels, loss_input, loss_output, statistics;
};

/// For microbatches of this size, cleared. kUnsupported if CUDA refuses.
[[nodiscard]] Result<Staging> make_staging(const Model& model, std::uint32_t microbatch);

/// Of one image as the host brings it.
[[nodiscard]] inline std::size_t image_floats(const Model& model) {
  const auto side = static_cast<std::size_t>(model.image_size);
  return 3 * side * side;
}

}  // namespace mayfly::nn::cuda
