#include "nn/cpu/block_layers.hpp"

#include <cmath>
#include <cstring>
#include <numeric>

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
    // The sums are in double and the pass has centred each chunk, so this difference loses few
    // digits. The comparison is written so that a NaN passes, because the loss must show it.
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

namespace {

std::size_t offset(const BlockedShape& shape, std::size_t image, std::size_t channel,
                   std::size_t pixel) {
  const std::size_t blocks = shape.channels / shape.block;
  const std::size_t plane = image * blocks + channel / shape.block;
  return (plane * shape.pixels + pixel) * shape.block + channel % shape.block;
}

}  // namespace

DownsamplingShortcut::DownsamplingShortcut(const BlockedShape& from, std::size_t from_width,
                                           Dtype dtype)
    : from_(from), to_(from), from_width_(from_width), element_bytes_(bytes_of(dtype)) {
  const std::size_t to_width = (from_width + 1) / 2;
  to_.channels = 2 * from.channels;
  to_.pixels = to_width * to_width;
}

template <typename Visit>
void DownsamplingShortcut::for_each_run(const Visit& visit) const {
  const std::size_t padding = (to_.channels - from_.channels) / 2;
  // The padding may shift channels by half a block; runs of this length never cross a block's
  // border on either side.
  const std::size_t run = std::gcd(padding, from_.block);
  const std::size_t to_width = (from_width_ + 1) / 2;
  for (std::size_t n = 0; n < from_.images; ++n) {
    for (std::size_t c = 0; c < from_.channels; c += run) {
      for (std::size_t row = 0; row < to_width; ++row) {
        for (std::size_t column = 0; column < to_width; ++column) {
          visit(offset(from_, n, c, 2 * row * from_width_ + 2 * column) * element_bytes_,
                offset(to_, n, c + padding, row * to_width + column) * element_bytes_,
                run * element_bytes_);
        }
      }
    }
  }
}

void DownsamplingShortcut::forward(const void* x, void* out) const {
  std::memset(out, 0, to_.elements() * element_bytes_);
  for_each_run([&](std::size_t from, std::size_t to, std::size_t bytes) {
    std::memcpy(static_cast<std::byte*>(out) + to, static_cast<const std::byte*>(x) + from, bytes);
  });
}

void DownsamplingShortcut::backward(const void* out_gradient, void* x_gradient) const {
  std::memset(x_gradient, 0, from_.elements() * element_bytes_);
  for_each_run([&](std::size_t from, std::size_t to, std::size_t bytes) {
    std::memcpy(static_cast<std::byte*>(x_gradient) + from,
                static_cast<const std::byte*>(out_gradient) + to, bytes);
  });
}

}  // namespace mayfly::nn::cpu
