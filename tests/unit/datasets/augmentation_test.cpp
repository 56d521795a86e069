#include "datasets/core/augmentation.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace mayfly::datasets {
namespace {

constexpr std::array<float, 3> kMean = {0.4914F, 0.4822F, 0.4465F};
constexpr std::array<float, 3> kDeviation = {0.2470F, 0.2435F, 0.2616F};

std::vector<std::uint8_t> numbered_image(int size) {
  std::vector<std::uint8_t> pixels(3U * static_cast<std::size_t>(size * size));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(1 + i * 37 % 251);
  }
  return pixels;
}

// The obvious way: normalise, pad with zeros, crop, flip, one after the other.
std::vector<float> reference(const Augmentation& draw, int size,
                             const std::vector<std::uint8_t>& pixels) {
  const int padded = size + 8;
  std::vector<float> output(pixels.size());
  for (int c = 0; c < 3; ++c) {
    const auto channel = static_cast<std::size_t>(c);
    std::vector<float> canvas(static_cast<std::size_t>(padded * padded), 0.0F);
    for (int y = 0; y < size; ++y) {
      for (int x = 0; x < size; ++x) {
        const auto byte = pixels[static_cast<std::size_t>((c * size + y) * size + x)];
        canvas[static_cast<std::size_t>((y + 4) * padded + x + 4)] =
            (static_cast<float>(byte) / 255.0F - kMean[channel]) / kDeviation[channel];
      }
    }
    for (int y = 0; y < size; ++y) {
      for (int x = 0; x < size; ++x) {
        const int from = draw.flip ? size - 1 - x : x;
        output[static_cast<std::size_t>((c * size + y) * size + x)] =
            canvas[static_cast<std::size_t>((y + draw.crop_y) * padded + from + draw.crop_x)];
      }
    }
  }
  return output;
}

TEST(Augmentation, EqualsNormalisePadCropFlipForEveryDraw) {
  const Normaliser normaliser(kMean, kDeviation);
  for (const int size : {4, 7, 32}) {
    const std::vector<std::uint8_t> pixels = numbered_image(size);
    std::vector<float> output(pixels.size());
    for (int x = 0; x <= 8; ++x) {
      for (int y = 0; y <= 8; ++y) {
        for (const bool flip : {false, true}) {
          const Augmentation draw{x, y, flip};
          normaliser.apply(draw, size, pixels, output);
          ASSERT_EQ(output, reference(draw, size, pixels)) << x << ' ' << y << ' ' << flip;
        }
      }
    }
  }
}

TEST(Augmentation, DefaultDrawChangesNothingButTheScale) {
  const Normaliser normaliser({0, 0, 0}, {1.0F / 255, 1.0F / 255, 1.0F / 255});
  const std::vector<std::uint8_t> pixels = numbered_image(32);
  std::vector<float> output(pixels.size());
  normaliser.apply({}, 32, pixels, output);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    ASSERT_NEAR(output[i], pixels[i], 1e-4);
  }
}

TEST(Augmentation, DrawsAreUniform) {
  std::array<int, 9> x{};
  std::array<int, 9> y{};
  std::array<int, 2> flip{};
  constexpr int kDraws = 90'000;
  for (int i = 0; i < kDraws; ++i) {
    const Augmentation draw = draw_augmentation(1, 2, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(draw.crop_x >= 0 && draw.crop_x <= 8 && draw.crop_y >= 0 && draw.crop_y <= 8);
    x[static_cast<std::size_t>(draw.crop_x)] += 1;
    y[static_cast<std::size_t>(draw.crop_y)] += 1;
    flip[draw.flip ? 1 : 0] += 1;
  }
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(x[i], kDraws / 9, 500);  // 5 standard deviations
    EXPECT_NEAR(y[i], kDraws / 9, 500);
  }
  EXPECT_NEAR(flip[0], kDraws / 2, 750);
}

TEST(Augmentation, DrawsDependOnSeedEpochAndSample) {
  int same = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Augmentation draw = draw_augmentation(1, 0, i);
    EXPECT_EQ(draw, draw_augmentation(1, 0, i));
    same += draw == draw_augmentation(2, 0, i) ? 1 : 0;
    same += draw == draw_augmentation(1, 1, i) ? 1 : 0;
    same += draw == draw_augmentation(1, 0, i + 1) ? 1 : 0;
  }
  EXPECT_LT(same, 60);  // 3000 / 162 by chance
}

// Part of the checkpoint format, like the order of the samples: may never change.
TEST(Augmentation, GivesTheGoldenDraws) {
  EXPECT_EQ(draw_augmentation(1, 0, 0), (Augmentation{4, 5, true}));
  EXPECT_EQ(draw_augmentation(1, 3, 49'999), (Augmentation{2, 1, false}));
}

}  // namespace
}  // namespace mayfly::datasets
