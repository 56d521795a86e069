#pragma once

// Our own element-wise kernels, once per instruction set. Activations are in oneDNN's blocked
// layout nChw16c or nChw8c: [image][channel block][pixel][channel in block]. Per-channel arrays are
// plain and padded to nothing: the channel count is a multiple of the block.
//
// Every sum has a fixed order that depends only on the shape: chunks of 64 pixels in fp32, chunks
// in double over pixels and then images.

#include <cstddef>

#include "nn/cpu/isa.hpp"

namespace mayfly::nn::cpu {

struct BlockedShape {
  std::size_t images = 0;
  std::size_t channels = 0;
  std::size_t pixels = 0;  ///< of one channel of one image
  std::size_t block = 0;   ///< channels per block, 16 or 8

  [[nodiscard]] std::size_t elements() const { return images * channels * pixels; }
};

/// Per-channel sums in double.
struct ChannelSums {
  double* first;
  double* second;
};

/// Per-channel factors of y = x * scale + shift.
struct Affine {
  const float* scale;
  const float* shift;
};

/// Per-channel factors of dx = gradient_factor * g + (centred_factor * (x - mean) + constant).
struct NormGradient {
  const float* gradient_factor;
  const float* centred_factor;
  const float* constant;
  const float* mean;
};

struct Kernels {
  std::size_t block;  ///< channels per block that these kernels work on

  /// first = sum of x, second = sum of x squared (each chunk is centred first, so that a large mean
  /// does not eat the variance's digits).
  void (*moments)(const BlockedShape&, const float* x, const ChannelSums& sums);

  /// out = max(0, affine(x))
  void (*normalise_relu)(const BlockedShape&, const float* x, const Affine&, float* out);

  /// out = max(0, affine(x) + residual)
  void (*normalise_add_relu)(const BlockedShape&, const float* x, const Affine&,
                             const float* residual, float* out);

  /// With g = gradient where affine(x) > 0, else 0: first = sum of g, second = sum of g * (x -
  /// mean).
  void (*relu_gradient_sums)(const BlockedShape&, const float* gradient, const float* x,
                             const Affine&, const float* mean, const ChannelSums& sums);

  /// gradient = the input gradient of norm and ReLU, from g as above, in place.
  void (*relu_input_gradient)(const BlockedShape&, float* gradient, const float* x, const Affine&,
                              const NormGradient&);

  /// gradient = (gradient + addend) where out > 0, else 0, in place (addend may be null); the sums
  /// as above over the new gradient.
  void (*join_gradient_sums)(const BlockedShape&, float* gradient, const float* addend,
                             const float* out, const float* x, const float* mean,
                             const ChannelSums& sums);

  /// dx = the input gradient of the norm alone. dx may be `gradient`.
  void (*input_gradient)(const BlockedShape&, const float* gradient, const float* x,
                         const NormGradient&, float* dx);
};

[[nodiscard]] const Kernels& kernels_for(Isa isa);

}  // namespace mayfly::nn::cpu
