#pragma once

// The operations and bytes of a training step, computed from the description of the network, for
// comparison with measured times. Pure.

#include <cstddef>
#include <vector>

#include "nn/dtype.hpp"
#include "nn/model.hpp"

namespace mayfly::bench {

/// The cost of one pass over a microbatch.
struct PassCost {
  /// Floating-point operations of the direct algorithm; a multiply-add counts as two. Winograd
  /// needs fewer, so its rate by this measure can exceed the machine's peak.
  double flops = 0;
  /// Bytes read and written if no cache kept data from one pass to the next, with norm and ReLU
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
  PassCost backward;  ///< both gradients; for the stem only the gradient of the weights
};

/// The cost of a convolution with its norm and ReLU. `images` is the number of samples in the
/// microbatch, `dtype` the type of activations and their gradients; weights and their gradients are
/// fp32.
[[nodiscard]] LayerCost layer_cost(const nn::ConvSpec& spec, bool has_input_gradient,
                                   std::size_t images, nn::Dtype dtype = nn::Dtype::kFp32);

struct StepCost {
  std::vector<LayerCost> layers;  ///< in the order of convolutions_of()
  /// The cost of the whole microbatch: the layers, the sums at the ends of blocks, pooling behind
  /// the stem, and the classifier. Without the update.
  PassCost total;
};
[[nodiscard]] StepCost step_cost(const nn::Model& model, std::size_t images,
                                 nn::Dtype dtype = nn::Dtype::kFp32);

}  // namespace mayfly::bench
