#pragma once

// Private to nn/cuda: a pass of a convolution in cuDNN's graph API: its operations, those that a
// fused pass adds, and the addresses of their tensors. One thread at a time.

#include "nn/cuda/conv_shape.hpp"
#include "nn/cuda/cudnn/descriptor.hpp"
#include "nn/dtype.hpp"

namespace mayfly::nn::cuda::cudnn {

/// The graph of a pass. Activations, filter and gradients are of `dtype`, sums and the factors of
/// norms are fp32. Fails as cuDNN does for an impossible convolution.
[[nodiscard]] Result<Descriptor> graph_of(const ConvShape& shape, ConvPass pass, Dtype dtype,
                                          const PlanningTarget& target);

/// The addresses of a graph's tensors, for a plan that was made from it.
[[nodiscard]] Result<Descriptor> bound_tensors(const ConvShape& shape, ConvPass pass,
                                               const ConvTensors& tensors);

}  // namespace mayfly::nn::cuda::cudnn
