#include "datasets/core/augmentation.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace mayfly::datasets {
namespace {

// What lies outside the image, once normalised: its mean colour (He et al. 2016, section 4.2, pad
// the normalised image).
constexpr float kOutside = 0.0F;

// One row of the output: table[input[x + shift]], or kOutside where that lies outside.
void crop_row(const std::uint8_t* input, int size, int shift, const float* table, float* output) {
  const int first = std::max(0, -shift);
  const int last = std::min(size, size - shift);
  std::fill(output, output + first, kOutside);
  for (int x = first; x < last; ++x) {
    output[x] = table[input[x + shift]];
  }
  std::fill(output + last, output + size, kOutside);
}

}  // namespace

Augmentation draw_augmentation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
  return draw_augmentation(augmentation_source(seed), epoch, sample);
}

Normaliser::Normaliser(const std::array<float, 3>& mean, const std::array<float, 3>& deviation) {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const float pixel = static_cast<float>(byte) / 255.0F;
      table_[channel][byte] = (pixel - mean[channel]) / deviation[channel];
    }
  }
}

void Normaliser::apply(const Augmentation& augmentation, int size,
                       std::span<const std::uint8_t> pixels, std::span<float> output) const {
  const auto side = static_cast<std::size_t>(size);
  ENSURE(size >= kCropPadding && pixels.size() == 3 * side * side && output.size() == pixels.size(),
         "an image is 3 x size x size");
  const int shift_x = augmentation.crop_x - kCropPadding;
  const int shift_y = augmentation.crop_y - kCropPadding;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const float* table = table_[channel].data();
    for (int y = 0; y < size; ++y) {
      float* row = output.data() + (channel * side + static_cast<std::size_t>(y)) * side;
      const int from = y + shift_y;
      if (from < 0 || from >= size) {
        std::fill(row, row + side, kOutside);
        continue;
      }
      const auto offset = (channel * side + static_cast<std::size_t>(from)) * side;
      crop_row(pixels.data() + offset, size, shift_x, table, row);
      if (augmentation.flip) {
        std::reverse(row, row + side);
      }
    }
  }
}

}  // namespace mayfly::datasets
