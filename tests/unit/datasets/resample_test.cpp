#include "datasets/core/resample.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/digest.hpp"
#include "base/random.hpp"

namespace mayfly::datasets {
namespace {

struct Picture {
  int width;
  int height;
  std::vector<std::uint8_t> pixels;

  [[nodiscard]] RgbImage view() const { return {width, height, pixels}; }
  [[nodiscard]] double at(int x, int y, int channel) const {
    return pixels[static_cast<std::size_t>((y * width + x) * 3 + channel)];
  }
};

Picture noise(int width, int height, std::uint64_t seed) {
  Picture picture{width, height, {}};
  const CounterRandom random(seed);
  for (int i = 0; i < width * height * 3; ++i) {
    picture.pixels.push_back(
        static_cast<std::uint8_t>(random.below(static_cast<std::uint64_t>(i), 256)));
  }
  return picture;
}

std::vector<std::uint8_t> scale(const Picture& picture, const ImagePart& part, int side) {
  std::vector<std::uint8_t> output(3U * static_cast<std::size_t>(side * side));
  Resampler().scale(picture.view(), part, side, output);
  return output;
}

// The definition of the result, in double: one sum over all pixels, without separate directions.
double reference(const Picture& picture, const ImagePart& part, int side, int x, int y, int c) {
  const auto weight = [side](int k, int i, double start, double length) {
    const double step = length / side;
    const double reach = std::max(step, 1.0);
    return std::max(0.0, 1 - std::abs(k + 0.5 - (start + (i + 0.5) * step)) / reach);
  };
  double sum = 0;
  double total = 0;
  for (int v = 0; v < picture.height; ++v) {
    const double vertical = weight(v, y, part.top, part.height);
    for (int u = 0; vertical > 0 && u < picture.width; ++u) {
      const double both = vertical * weight(u, x, part.left, part.width);
      sum += both * picture.at(u, v, c);
      total += both;
    }
  }
  return sum / total;
}

TEST(Resampler, AgreesWithTheDefinition) {
  const std::vector<std::pair<Picture, ImagePart>> cases = {
      {noise(40, 30, 1), {0, 0, 40, 30}},
      {noise(40, 30, 2), {3, 5, 20, 11}},
      {noise(61, 47, 3), {7.5, 0.25, 53, 46.5}},
      {noise(9, 9, 4), {0, 0, 9, 9}},
      {noise(200, 10, 5), {100, 1, 99.5, 8}},
      {noise(5, 3, 6), {4, 2, 1, 1}},
      {noise(1, 1, 7), {0, 0, 1, 1}}};
  for (const auto& [picture, part] : cases) {
    for (const int side : {1, 9, 16}) {
      const std::vector<std::uint8_t> output = scale(picture, part, side);
      double worst = 0;
      for (int c = 0; c < 3; ++c) {
        for (int y = 0; y < side; ++y) {
          for (int x = 0; x < side; ++x) {
            const double expected = reference(picture, part, side, x, y, c);
            const auto at = static_cast<std::size_t>((c * side + y) * side + x);
            worst = std::max(worst, std::abs(expected - output[at]));
          }
        }
      }
      // Half a step for each direction, and the weights' rounding.
      EXPECT_LT(worst, 1.1) << picture.width << 'x' << picture.height << " to " << side;
    }
  }
}

TEST(Resampler, CopiesWhatHasTheSizeAlready) {
  const Picture picture = noise(20, 24, 8);
  const std::vector<std::uint8_t> output = scale(picture, {2, 6, 16, 16}, 16);
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 16; ++y) {
      for (int x = 0; x < 16; ++x) {
        ASSERT_EQ(output[static_cast<std::size_t>((c * 16 + y) * 16 + x)],
                  picture.at(x + 2, y + 6, c));
      }
    }
  }
}

TEST(Resampler, KeepsOneColourExactly) {
  Picture picture{37, 53, {}};
  for (int i = 0; i < 37 * 53; ++i) {
    picture.pixels.insert(picture.pixels.end(), {0, 255, 77});
  }
  for (const int side : {3, 32, 224}) {
    const std::vector<std::uint8_t> output = scale(picture, {1.3, 2.7, 35, 50}, side);
    const auto plane = static_cast<std::size_t>(side * side);
    for (std::size_t i = 0; i < plane; ++i) {
      ASSERT_EQ(output[i], 0);
      ASSERT_EQ(output[plane + i], 255);
      ASSERT_EQ(output[2 * plane + i], 77);
    }
  }
}

// If this fails on some machine, its arithmetic differs.
TEST(Resampler, GivesTheGoldenBytes) {
  Digester digester;
  for (const int side : {8, 33, 96}) {
    const auto output = scale(noise(123, 77, 9), {5.375, 1.625, 100.25, 71.5}, side);
    digester.add(std::as_bytes(std::span(output)));
  }
  EXPECT_EQ(to_string(digester.finish()), "498b4fa7ca8196a0b7fc671146414337");
}

}  // namespace
}  // namespace mayfly::datasets
