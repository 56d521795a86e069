#include "nn/cpu/norm_layer.hpp"

#include <algorithm>
#include <cmath>

namespace mayfly::nn::cpu {
namespace {

constexpr double kEpsilon = 1e-5;  // PyTorch's default

}  // namespace

NormLayer::NormLayer(const Kernels& kernels, const BlockedShape& shape)
    : kernels_(kernels),
      shape_(shape),
      first_(shape.channels),
      second_(shape.channels),
      inverse_deviation_(shape.channels),
      mean_(shape.channels),
      folded_scale_(shape.channels),
      folded_shift_(shape.channels),
      gradient_factor_(shape.channels),
      centred_factor_(shape.channels),
      constant_(shape.channels) {}

void NormLayer::fold(const float* scale, const float* shift) {
  for (std::size_t c = 0; c < shape_.channels; ++c) {
    const double factor = scale[c] * inverse_deviation_[c];
    folded_scale_[c] = static_cast<float>(factor);
    folded_shift_[c] = static_cast<float>(shift[c] - mean_[c] * factor);
  }
}

void NormLayer::measure(const float* x, const float* scale, const float* shift, float* mean,
                        float* variance) {
  kernels_.moments(shape_, x, sums());
  const double count = static_cast<double>(shape_.images * shape_.pixels);
  for (std::size_t c = 0; c < shape_.channels; ++c) {
    const double centre = first_[c] / count;
    // The sums are in double and the kernel centred each chunk, so this difference is harmless. The
    // comparison is written so that a NaN passes: the loss must show it.
    const double spread = second_[c] / count - centre * centre;
    const double biased = spread < 0 ? 0 : spread;
    mean_[c] = static_cast<float>(centre);
    inverse_deviation_[c] = 1.0 / std::sqrt(biased + kEpsilon);
    mean[c] = mean_[c];
    variance[c] = static_cast<float>(biased * (count / (count - 1.0)));
  }
  fold(scale, shift);
}

void NormLayer::use_running(const float* scale, const float* shift, const float* mean,
                            const float* variance) {
  for (std::size_t c = 0; c < shape_.channels; ++c) {
    mean_[c] = mean[c];
    inverse_deviation_[c] = 1.0 / std::sqrt(variance[c] + kEpsilon);
  }
  fold(scale, shift);
}

void NormLayer::forward_relu(const float* x, float* out) const {
  kernels_.normalise_relu(shape_, x, affine(), out);
}

void NormLayer::forward_add_relu(const float* x, const float* residual, float* out) const {
  kernels_.normalise_add_relu(shape_, x, affine(), residual, out);
}

NormGradient NormLayer::gradient_factors() const {
  return {gradient_factor_.data(), centred_factor_.data(), constant_.data(), mean_.data()};
}

// With d = 1/deviation, S1 = sum g, S2 = sum g * (x - mean), n values per channel:
//   dx = scale * d * (g - S1 / n - (x - mean) * d^2 * S2 / n)
void NormLayer::derive_gradient_factors(float* scale_gradient, float* shift_gradient) {
  const double count = static_cast<double>(shape_.images * shape_.pixels);
  for (std::size_t c = 0; c < shape_.channels; ++c) {
    const double inverse = inverse_deviation_[c];
    const double factor = folded_scale_[c];
    gradient_factor_[c] = folded_scale_[c];
    centred_factor_[c] = static_cast<float>(-factor * inverse * inverse * second_[c] / count);
    constant_[c] = static_cast<float>(-factor * first_[c] / count);
    scale_gradient[c] = static_cast<float>(second_[c] * inverse);
    shift_gradient[c] = static_cast<float>(first_[c]);
  }
}

void NormLayer::backward_relu(float* gradient, const float* x, float* scale_gradient,
                              float* shift_gradient) {
  kernels_.relu_gradient_sums(shape_, gradient, x, affine(), mean_.data(), sums());
  derive_gradient_factors(scale_gradient, shift_gradient);
  kernels_.relu_input_gradient(shape_, gradient, x, affine(), gradient_factors());
}

void NormLayer::backward_add_relu(float* gradient, const float* addend, const float* out,
                                  const float* x, float* x_gradient, float* scale_gradient,
                                  float* shift_gradient) {
  kernels_.join_gradient_sums(shape_, gradient, addend, out, x, mean_.data(), sums());
  derive_gradient_factors(scale_gradient, shift_gradient);
  kernels_.input_gradient(shape_, gradient, x, gradient_factors(), x_gradient);
}

}  // namespace mayfly::nn::cpu
