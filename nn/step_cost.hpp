#pragma once

// What a training step has to do, from its description alone: the yardstick that measured times are
// held against. Pure.

#include <cstddef>
#include <vector>

#include "nn/dtype.hpp"
#include "nn/model.hpp"

namespace mayfly::nn {

/// Of one pass over a microbatch.
struct PassCost {
  /// Floating-point operations of the direct algorithm, a multiply-add as two. Winograd needs
  /// fewer, so it can exceed what the machine can do.
  double flops = 0;
  /// Bytes read and written if no cache kept anything from one pass to the next, with norm and ReLU
  /// applied where their tensors are read anyway.
  double bytes = 0;

  PassCost& operator+=(const PassCost& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

struct LayerCost {
  PassCost forward;
  PassCost backward;  ///< both gradients; of the stem only that of the weights
};

/// Of a convolution with its norm and ReLU. `images` is the microbatch, `dtype` that of activations
/// and their gradients; weights and theirs are fp32.
[[nodiscard]] LayerCost layer_cost(const ConvSpec& spec, bool has_input_gradient,
                                   std::size_t images, Dtype dtype = Dtype::kFp32);

struct StepCost {
  std::vector<LayerCost> layers;  ///< in the order of convolutions_of()
  /// Of the whole microbatch: the layers, the sums at the ends of blocks, pooling behind the stem,
  /// and the classifier. Without the update.
  PassCost total;
};
[[nodiscard]] StepCost step_cost(const Model& model, std::size_t images,
                                 Dtype dtype = Dtype::kFp32);

}  // namespace mayfly::nn
