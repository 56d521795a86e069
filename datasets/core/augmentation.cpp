#include "datasets/core/augmentation.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/portable_math.hpp"
#include "base/random.hpp"

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

constexpr int kTries = 10;
constexpr std::uint64_t kDrawsPerTry = 4;
constexpr double kAreaMin = 0.08;
constexpr double kRatioMin = 3.0 / 4.0;
constexpr double kRatioMax = 4.0 / 3.0;
constexpr double kLogRatioRange = 0.57536414490356185;  // ln(kRatioMax / kRatioMin)

int rounded(double x) {
  return static_cast<int>(x + 0.5);
}

ImagePart fallback_part(int width, int height) {
  const double ratio = static_cast<double>(width) / height;
  int part_width = width;
  int part_height = height;
  if (ratio < kRatioMin) {
    part_height = std::min(height, rounded(width / kRatioMin));
  } else if (ratio > kRatioMax) {
    part_width = std::min(width, rounded(height * kRatioMax));
  }
  return {static_cast<double>((width - part_width) / 2),
          static_cast<double>((height - part_height) / 2), static_cast<double>(part_width),
          static_cast<double>(part_height)};
}

// One attempt; the part has no width if it does not fit the image.
ImagePart try_part(const CounterRandom& random, std::uint64_t counter, int width, int height) {
  const double pixels = static_cast<double>(width) * height;
  const double area = pixels * (kAreaMin + (1.0 - kAreaMin) * random.unit(counter));
  const double ratio = kRatioMax * portable_exp(-kLogRatioRange * random.unit(counter + 1));
  const int part_width = rounded(std::sqrt(area * ratio));
  const int part_height = rounded(std::sqrt(area / ratio));
  if (part_width < 1 || part_width > width || part_height < 1 || part_height > height) {
    return {};
  }
  const auto places_x = static_cast<std::uint64_t>(width - part_width + 1);
  const auto places_y = static_cast<std::uint64_t>(height - part_height + 1);
  return {static_cast<double>(random.below(counter + 2, places_x)),
          static_cast<double>(random.below(counter + 3, places_y)), static_cast<double>(part_width),
          static_cast<double>(part_height)};
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

ResizedCrop draw_resized_crop(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                              int width, int height) {
  ENSURE(width >= 1 && width <= 65'535 && height >= 1 && height <= 65'535,
         "images have 1 to 65,535 pixels a side");
  const CounterRandom random = CounterRandom(seed).split("resized crop").split(epoch).split(sample);
  ResizedCrop draw;
  draw.flip = (random.bits(0) & 1) != 0;
  for (std::uint64_t i = 0; i < kTries && draw.part.width == 0; ++i) {
    draw.part = try_part(random, 1 + i * kDrawsPerTry, width, height);
  }
  if (draw.part.width == 0) {
    draw.part = fallback_part(width, height);
  }
  return draw;
}

ImagePart centre_part(int width, int height) {
  const double side = std::min(width, height) * 0.875;
  return {(width - side) / 2, (height - side) / 2, side, side};
}

}  // namespace mayfly::datasets
