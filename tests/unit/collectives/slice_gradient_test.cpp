#include "collectives/parameter_server/slice_gradient.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace mayfly::parameter_server {
namespace {

std::vector<std::vector<float>> random_gradients(std::size_t slices, std::size_t elements) {
  std::mt19937 random(7);
  std::normal_distribution<float> draw;
  std::vector<std::vector<float>> gradients(slices, std::vector<float>(elements));
  for (std::vector<float>& gradient : gradients) {
    for (float& value : gradient) {
      value = draw(random);
    }
  }
  return gradients;
}

bool same_bits(const std::vector<float>& one, const std::vector<float>& other) {
  return one.size() == other.size() &&
         std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

TEST(SliceGradient, AMeanIsSummedInTheOrderOfTheSlices) {
  constexpr std::size_t kElements = 3001;  // a prime number
  for (const std::size_t count : {1U, 2U, 5U}) {
    const auto gradients = random_gradients(count, kElements);
    std::vector<SliceGradient> slices;
    std::uint32_t microbatches = 0;
    for (std::size_t s = 0; s < count; ++s) {
      slices.push_back({gradients[s], static_cast<std::uint32_t>(s + 1)});
      microbatches += slices.back().microbatches;
    }
    std::vector<float> expected(kElements);
    const float scale = 1.0F / static_cast<float>(microbatches);
    for (std::size_t i = 0; i < kElements; ++i) {
      float sum = gradients[0][i];
      for (std::size_t s = 1; s < count; ++s) {
        sum += gradients[s][i];
      }
      expected[i] = sum * scale;
    }
    std::vector<float> whole(kElements);
    mean_of(slices, 0, whole);
    EXPECT_TRUE(same_bits(whole, expected)) << count << " slices";
    std::vector<float> in_parts(kElements);
    for (std::size_t first = 0; first < kElements; first += 100) {
      const std::size_t size = std::min<std::size_t>(100, kElements - first);
      mean_of(slices, first, std::span(in_parts).subspan(first, size));
    }
    EXPECT_TRUE(same_bits(in_parts, expected)) << count << " slices, in parts";
  }
}

}  // namespace
}  // namespace mayfly::parameter_server
