#pragma once

// Private to nn/cuda: what a pass of a convolution is in cuDNN's graph API: its operations, those
// that a fused pass adds, and where their tensors are. A thread at a time.

#include "nn/cuda/conv_shape.hpp"
#include "nn/cuda/cudnn/descriptor.hpp"
#include "nn/dtype.hpp"

namespace mayfly::nn::cuda::cudnn {

/// Activations, filter and gradients all of `dtype`, sums and what norms know of a channel in fp32.
/// Fails as cuDNN does, for what is no convolution.
[[nodiscard]] Result<Descriptor> graph_of(const ConvShape& shape, ConvPass pass, Dtype dtype,
                                          const PlanningTarget& target);

/// The places of a graph's tensors, for a plan that was made of it.
[[nodiscard]] Result<Descriptor> bound_tensors(const ConvShape& shape, ConvPass pass,
                                               const ConvTensors& tensors);

}  // namespace mayfly::nn::cuda::cudnn
