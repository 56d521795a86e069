#pragma once

// Private to nn/cpu: how a convolution reads its tensors and what it does with its results on the
// way, so that norm, ReLU and shortcut need no passes of their own. All activations are blocked
// (nn/cpu/kernels.hpp), of the dtype that the engine was built for.

#include "nn/cpu/kernels.hpp"

namespace mayfly::nn::cpu {

/// A convolution's input: x as it is stored, or max(0, affine(x)).
struct ActivationRead {
  const void* x = nullptr;
  bool through_norm = false;  ///< read norm and ReLU of x
  Affine affine{};            ///< with through_norm
};

/// A convolution's output, and the sums over it that batch norm wants.
struct ActivationWrite {
  void* out = nullptr;
  bool wants_moments = false;
  ChannelSums moments{};  ///< with wants_moments: sums of out and of its squares, overwritten
};

/// The gradient of a convolution's output: as it is stored, or through the batch norm behind the
/// convolution: the gradient of the norm's output is stored, and x is the norm's input.
struct GradientRead {
  const void* gradient = nullptr;
  bool through_norm = false;
  const void* x = nullptr;  ///< with through_norm
  NormGradient factors{};   ///< with through_norm
};

/// Where the ReLU in front of a convolution's input was active.
enum class ReluMask {
  kNone,      ///< there is none: nothing is masked, no sums are taken
  kAffine,    ///< where affine(x) > 0
  kPositive,  ///< where the ReLU's output was > 0
};

/// What becomes of the gradient of a convolution's input: the shortcut's part is added, the ReLU
/// that made the input masks it, and the sums that the norm before that ReLU wants are taken.
struct GradientWrite {
  void* out = nullptr;
  const void* addend = nullptr;  ///< null: none
  ReluMask mask = ReluMask::kNone;
  Affine affine{};                    ///< with kAffine
  const void* relu_output = nullptr;  ///< with kPositive
  const void* x = nullptr;            ///< input of the norm before the ReLU, unless kNone
  const float* mean = nullptr;        ///< of that norm
  ChannelSums sums{};                 ///< sum of out, sum of out * (x - mean); overwritten
};

}  // namespace mayfly::nn::cpu
