#pragma once

// Private to nn/cuda: a number as activations are stored on a device, by CUDA's own conversions.
// Pure; any thread.

#include <cstddef>

#include "nn/dtype.hpp"

namespace mayfly::nn::cuda {

/// `to` has bytes_of(dtype); rounded to nearest even.
void store(Dtype dtype, float value, std::byte* to);
[[nodiscard]] float load(Dtype dtype, const std::byte* from);

}  // namespace mayfly::nn::cuda
