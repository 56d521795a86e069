#pragma once

// Private to nn/cpu: batch norm over the images of a microbatch, fused with what follows it (ReLU,
// or shortcut and ReLU). As torch.nn.BatchNorm2d: biased variance to normalise, unbiased to report.

#include <vector>

#include "nn/cpu/kernels.hpp"

namespace mayfly::nn::cpu {

class NormLayer {
 public:
  NormLayer(const Kernels& kernels, const BlockedShape& shape);

  /// Training: measures x; writes its mean and unbiased variance (one value per channel each) to
  /// `mean` and `variance`, and normalises with the batch's own from now on.
  void measure(const float* x, const float* scale, const float* shift, float* mean,
               float* variance);

  /// Inference: normalises with running statistics from now on.
  void use_running(const float* scale, const float* shift, const float* mean,
                   const float* variance);

  void forward_relu(const float* x, float* out) const;
  void forward_add_relu(const float* x, const float* residual, float* out) const;

  /// Through ReLU and norm, in place: `gradient` comes as that of the output and leaves as that of
  /// x.
  void backward_relu(float* gradient, const float* x, float* scale_gradient, float* shift_gradient);

  /// Through shortcut addition, ReLU and norm. `gradient` (plus `addend`, unless null) comes as the
  /// gradient of `out` and leaves as that of the sum before the ReLU, which is also the shortcut's.
  /// The gradient of x goes to `x_gradient`, which may be `gradient` if nobody needs the sum's.
  void backward_add_relu(float* gradient, const float* addend, const float* out, const float* x,
                         float* x_gradient, float* scale_gradient, float* shift_gradient);

 private:
  void fold(const float* scale, const float* shift);
  void derive_gradient_factors(float* scale_gradient, float* shift_gradient);
  [[nodiscard]] ChannelSums sums() { return {first_.data(), second_.data()}; }
  [[nodiscard]] Affine affine() const { return {folded_scale_.data(), folded_shift_.data()}; }
  [[nodiscard]] NormGradient gradient_factors() const;

  const Kernels& kernels_;
  BlockedShape shape_;
  std::vector<double> first_;  ///< sums of the kernels
  std::vector<double> second_;
  std::vector<double> inverse_deviation_;
  std::vector<float> mean_;
  std::vector<float> folded_scale_;  ///< x * folded_scale + folded_shift is the whole norm
  std::vector<float> folded_shift_;
  std::vector<float> gradient_factor_;
  std::vector<float> centred_factor_;
  std::vector<float> constant_;
};

}  // namespace mayfly::nn::cpu
