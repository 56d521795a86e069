#include "datasets/core/resized_crop.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/portable_math.hpp"
#include "base/random.hpp"

namespace mayfly::datasets {
namespace {

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
