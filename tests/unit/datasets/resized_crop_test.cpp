#include "datasets/core/augmentation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace mayfly::datasets {
namespace {

struct Golden {
  std::uint64_t seed;
  std::uint64_t epoch;
  std::uint64_t sample;
  int width;
  int height;
  ResizedCrop expected;
};

// Computed by a second implementation in Python. The draws decide what a job trains on: these
// values may never change.
TEST(ResizedCrop, GivesTheGoldenDraws) {
  const std::array<Golden, 8> table = {{
      {1, 0, 0, 500, 375, {{69, 50, 267, 276}, true}},
      {1, 0, 1, 500, 375, {{2, 19, 459, 351}, false}},
      {1, 1, 0, 500, 375, {{122, 209, 168, 140}, true}},
      {2, 0, 0, 375, 500, {{135, 91, 144, 110}, false}},
      {1, 90, 1'281'166, 4288, 2848, {{93, 309, 2846, 2391}, false}},
      {7, 3, 5, 8, 8, {{1, 0, 6, 8}, false}},
      {1, 0, 0, 2000, 100, {{933, 0, 133, 100}, true}},
      {1, 0, 0, 100, 2000, {{0, 933, 100, 133}, true}},
  }};
  for (const Golden& golden : table) {
    const ResizedCrop draw =
        draw_resized_crop(golden.seed, golden.epoch, golden.sample, golden.width, golden.height);
    EXPECT_EQ(draw, golden.expected)
        << draw.part.left << ' ' << draw.part.top << ' ' << draw.part.width << ' '
        << draw.part.height << ' ' << draw.flip;
  }
}

TEST(ResizedCrop, LiesInsideImagesOfEveryShape) {
  for (const auto& [width, height] :
       {std::pair(1, 1), std::pair(1, 9), std::pair(8, 8), std::pair(500, 375),
        std::pair(65'535, 65'535), std::pair(16'384, 20)}) {
    for (std::uint64_t sample = 0; sample < 500; ++sample) {
      const ImagePart part = draw_resized_crop(3, 4, sample, width, height).part;
      ASSERT_GE(part.left, 0);
      ASSERT_GE(part.top, 0);
      ASSERT_GE(part.width, 1);
      ASSERT_GE(part.height, 1);
      ASSERT_LE(part.left + part.width, width);
      ASSERT_LE(part.top + part.height, height);
    }
  }
}

// Goal: areas are uniform from 8 % on, ratios evenly spread on a logarithmic scale. The image is
// square and large, so that few draws are repeated and rounding does not matter.
TEST(ResizedCrop, SpreadsAreasAndRatiosAsStated) {
  constexpr int kSide = 4000;
  constexpr int kCount = 20'000;
  double log_ratio_sum = 0;
  int small = 0;
  int flips = 0;
  for (int i = 0; i < kCount; ++i) {
    const ResizedCrop draw = draw_resized_crop(9, 0, static_cast<std::uint64_t>(i), kSide, kSide);
    const double area = draw.part.width * draw.part.height / (1.0 * kSide * kSide);
    const double ratio = draw.part.width / draw.part.height;
    ASSERT_GT(area, 0.0799);
    ASSERT_LE(area, 1.0);
    ASSERT_GT(ratio, 0.749);
    ASSERT_LT(ratio, 1.335);
    log_ratio_sum += std::log(ratio);
    small += area < 0.54 ? 1 : 0;
    flips += draw.flip ? 1 : 0;
  }
  EXPECT_NEAR(log_ratio_sum / kCount, 0, 0.01);
  EXPECT_NEAR(flips, kCount / 2, 300);
  // Large areas with a slanted ratio do not fit and are drawn again: more than half are small.
  EXPECT_GT(small, kCount / 2);
  EXPECT_LT(small, kCount * 6 / 10);
}

TEST(ResizedCrop, CentreIsSevenEighthsOfTheShorterSide) {
  EXPECT_EQ(centre_part(256, 256), (ImagePart{16, 16, 224, 224}));
  EXPECT_EQ(centre_part(500, 400), (ImagePart{75, 25, 350, 350}));
  EXPECT_EQ(centre_part(8, 80), (ImagePart{0.5, 36.5, 7, 7}));
}

TEST(ResizedCrop, OfAnImageThatIsTooLongForEveryTryIsItsMiddle) {
  const auto part = [](int width, int height) {
    const ImagePart drawn = draw_resized_crop(7, 0, 3, width, height).part;
    return std::array{drawn.left, drawn.top, drawn.width, drawn.height};
  };
  EXPECT_EQ(part(1000, 3), (std::array{498.0, 0.0, 4.0, 3.0})) << "four thirds as wide";
  EXPECT_EQ(part(3, 1000), (std::array{0.0, 498.0, 3.0, 4.0})) << "three quarters as wide";
  EXPECT_EQ(part(1000, 1), (std::array{499.0, 0.0, 1.0, 1.0}));
}

}  // namespace
}  // namespace mayfly::datasets
