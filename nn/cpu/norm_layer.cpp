#include "nn/cpu/norm_layer.hpp"

#include <algorithm>
#include <cmath>

namespace mayfly::nn::cpu {
namespace {

constexpr double kEpsilon = 1e-5;  // PyTorch's default

}  // namespace

NormLayer::NormLayer(std::size_t channels, std::size_t count)
    : count_(static_cast<double>(count)),
      first_(channels),
      second_(channels),
      inverse_deviation_(channels),
      mean_(channels),
      folded_scale_(channels),
      folded_shift_(channels),
      gradient_factor_(channels),
      centred_factor_(channels),
      constant_(channels) {}

void NormLayer::fold(const float* scale, const float* shift) {
  for (std::size_t c = 0; c < mean_.size(); ++c) {
    const double factor = scale[c] * inverse_deviation_[c];
    folded_scale_[c] = static_cast<float>(factor);
    folded_shift_[c] = static_cast<float>(shift[c] - mean_[c] * factor);
  }
}

void NormLayer::measure(const float* scale, const float* shift, float* mean, float* variance) {
  for (std::size_t c = 0; c < mean_.size(); ++c) {
    const double centre = first_[c] / count_;
    // The sums are in double and the pass centred each chunk, so this difference is harmless. The
    // comparison is written so that a NaN passes: the loss must show it.
    const double spread = second_[c] / count_ - centre * centre;
    const double biased = spread < 0 ? 0 : spread;
    mean_[c] = static_cast<float>(centre);
    inverse_deviation_[c] = 1.0 / std::sqrt(biased + kEpsilon);
    mean[c] = mean_[c];
    variance[c] = static_cast<float>(biased * (count_ / (count_ - 1.0)));
  }
  fold(scale, shift);
}

void NormLayer::use_running(const float* scale, const float* shift, const float* mean,
                            const float* variance) {
  for (std::size_t c = 0; c < mean_.size(); ++c) {
    mean_[c] = mean[c];
    inverse_deviation_[c] = 1.0 / std::sqrt(variance[c] + kEpsilon);
  }
  fold(scale, shift);
}

NormGradient NormLayer::gradient_factors() const {
  return {gradient_factor_.data(), centred_factor_.data(), constant_.data(), mean_.data()};
}

// With d = 1/deviation, S1 = sum g, S2 = sum g * (x - mean), n values per channel:
//   dx = scale * d * (g - S1 / n - (x - mean) * d^2 * S2 / n)
void NormLayer::derive_input_gradient(float* scale_gradient, float* shift_gradient) {
  for (std::size_t c = 0; c < mean_.size(); ++c) {
    const double inverse = inverse_deviation_[c];
    const double factor = folded_scale_[c];
    gradient_factor_[c] = folded_scale_[c];
    centred_factor_[c] = static_cast<float>(-factor * inverse * inverse * second_[c] / count_);
    constant_[c] = static_cast<float>(-factor * first_[c] / count_);
    scale_gradient[c] = static_cast<float>(second_[c] * inverse);
    shift_gradient[c] = static_cast<float>(first_[c]);
  }
}

}  // namespace mayfly::nn::cpu
