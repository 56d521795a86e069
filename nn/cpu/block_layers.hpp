#pragma once

// Private to nn/cpu: the layers of a residual block besides its convolutions.

#include <vector>

#include "nn/cpu/kernels.hpp"

namespace mayfly::nn::cpu {

/// Batch norm over the images of a microbatch, as torch.nn.BatchNorm2d: the biased variance for
/// normalising, the unbiased one for the running statistics. This class has only the arithmetic per
/// channel; the passes over the pixels belong to the convolutions around it (nn/cpu/kernels.hpp).
class NormLayer {
 public:
  /// A norm over `count` values of each of `channels` channels.
  NormLayer(std::size_t channels, std::size_t count);

  /// The memory into which the pass before measure() writes the moments of x, and the pass before
  /// derive_input_gradient() the sums over the gradient.
  [[nodiscard]] ChannelSums sums() { return {first_.data(), second_.data()}; }

  /// Training, once sums() contains the moments: writes mean and unbiased variance (one value per
  /// channel each) to `mean` and `variance`, and from now on normalises with those of the batch.
  void measure(const float* scale, const float* shift, float* mean, float* variance);

  /// Inference: normalises with running statistics from now on.
  void use_running(const float* scale, const float* shift, const float* mean,
                   const float* variance);

  /// The whole norm: x * scale + shift.
  [[nodiscard]] Affine affine() const { return {folded_scale_.data(), folded_shift_.data()}; }
  [[nodiscard]] const float* mean() const { return mean_.data(); }

  /// Backward, once sums() contains the sums over the gradient of the norm's output: writes the
  /// gradients of scale and shift, and makes gradient_factors() valid.
  void derive_input_gradient(float* scale_gradient, float* shift_gradient);
  [[nodiscard]] NormGradient gradient_factors() const;

 private:
  void fold(const float* scale, const float* shift);

  double count_;
  std::vector<double> first_;  ///< sums of the passes
  std::vector<double> second_;
  std::vector<double> inverse_deviation_;
  std::vector<float> mean_;
  std::vector<float> folded_scale_;
  std::vector<float> folded_shift_;
  std::vector<float> gradient_factor_;
  std::vector<float> centred_factor_;
  std::vector<float> constant_;
};

/// The option-A shortcut of He et al. 2016, section 4.2, where the shape changes: it takes every
/// second pixel and pads the new channels with zeros, half before and half after.
class DownsamplingShortcut {
 public:
  /// `from` has `from_width` pixels per row and half the channels of the output.
  DownsamplingShortcut(const BlockedShape& from, std::size_t from_width, Dtype dtype);

  /// Writes all of `out`.
  void forward(const void* x, void* out) const;
  /// Writes all of `x_gradient`: the output's gradient for pixels that were taken, otherwise zero.
  void backward(const void* out_gradient, void* x_gradient) const;

 private:
  /// Calls visit(offset in x, offset in out, bytes) for each run of neighbouring channels; all in
  /// bytes.
  template <typename Visit>
  void for_each_run(const Visit& visit) const;

  BlockedShape from_;
  BlockedShape to_;
  std::size_t from_width_;
  std::size_t element_bytes_;
};

}  // namespace mayfly::nn::cpu
