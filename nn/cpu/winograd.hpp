#pragma once

// Private to nn/cpu: 3x3 convolutions with stride 1 and padding 1 by Winograd's minimal filtering
// F(4x4, 3x3) (Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks", with the
// points 0, 1, -1, 2, -2, infinity): 36 multiplications where the definition has 144.
//
// A pass walks over the image in rows of 4x4 tiles, a few at a time ("batch"). It brings rows of
// pixels into a small buffer with a border of zeros (there norm and ReLU are applied), transforms
// its tiles, multiplies 36 small matrices, transforms back, and hands the pixels on row by row
// (there shortcut, mask and sums are dealt with). So a tensor is read and written once per pass.
//
// All sums have a fixed order that depends on the shape and the instruction set only.

#include <cstddef>

#include "nn/cpu/isa.hpp"
#include "nn/cpu/kernels.hpp"

namespace mayfly::nn::cpu {

inline constexpr std::size_t kWinogradPoints = 36;

struct WinogradShape {
  std::size_t images = 0;
  std::size_t in_channels = 0;   ///< a multiple of the block
  std::size_t out_channels = 0;  ///< a multiple of the block
  std::size_t size = 0;          ///< height = width, of input and output

  [[nodiscard]] std::size_t tiles() const { return (size + 3) / 4; }  ///< per side
  [[nodiscard]] std::size_t flat_weight_floats() const { return 9 * in_channels * out_channels; }
  /// Transformed weights.
  [[nodiscard]] std::size_t weight_floats() const {
    return kWinogradPoints * in_channels * out_channels;
  }
  /// Floats of working memory for any pass.
  [[nodiscard]] std::size_t scratch_floats() const;
};

/// Transformed weights are one matrix per point, [channel of the input][channel of the output] of
/// the pass, in the order in which it reads them.
struct WinogradKernels {
  /// From flat OIHW weights to those of the forward pass.
  void (*transform_weights)(const WinogradShape&, const float* weights, float* transformed);
  /// The same for the gradient of the input.
  void (*transform_weights_for_backward)(const WinogradShape&, const float* weights,
                                         float* transformed);

  void (*forward)(const WinogradShape&, const ActivationRead&, const float* transformed,
                  const ActivationWrite&, float* scratch);

  /// Both gradients at once, because they share reading the output's gradient. `transformed` is for
  /// backward; `weight_sums` is room for weight_floats(); `weight_gradient` (flat OIHW) is
  /// overwritten.
  void (*backward)(const WinogradShape&, const ActivationRead&, const GradientRead&,
                   const float* transformed, const GradientWrite&, float* weight_sums,
                   float* weight_gradient, float* scratch);
};

/// With bf16 (AVX-512 only) tensors are read and written as bf16; all arithmetic stays fp32.
[[nodiscard]] const WinogradKernels& winograd_for(Isa isa, Dtype dtype);

}  // namespace mayfly::nn::cpu
