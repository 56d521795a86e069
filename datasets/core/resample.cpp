#include "datasets/core/resample.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace mayfly::datasets {
namespace {

constexpr int kWeightBits = 14;
constexpr std::int32_t kOne = 1 << kWeightBits;
constexpr std::int32_t kHalf = kOne / 2;

std::uint8_t to_byte(std::int32_t sum) {
  // Weights are not negative and sum to one, so the result cannot leave the range of a byte.
  return static_cast<std::uint8_t>((sum + kHalf) >> kWeightBits);
}

// Rounds the weights so that they still sum to one: the rounding error is added to the largest.
void put_weights(const std::vector<double>& exact, std::int32_t* weights) {
  double total = 0;
  for (const double weight : exact) {
    total += weight;
  }
  std::int32_t rest = kOne;
  std::size_t largest = 0;
  for (std::size_t k = 0; k < exact.size(); ++k) {
    weights[k] = static_cast<std::int32_t>(exact[k] / total * kOne);
    rest -= weights[k];
    largest = weights[k] > weights[largest] ? k : largest;
  }
  weights[largest] += rest;
}

}  // namespace

void Resampler::plan(double start, double length, int input_size, int side, Axis& axis) {
  const double step = length / side;
  const double reach = std::max(step, 1.0);
  axis.taps = static_cast<std::size_t>(2 * reach) + 2;
  axis.first.assign(static_cast<std::size_t>(side), 0);
  axis.weights.assign(static_cast<std::size_t>(side) * axis.taps, 0);
  std::vector<double> exact;
  for (int i = 0; i < side; ++i) {
    const double centre = start + (i + 0.5) * step;
    // Pixel k lies at k + 0.5; those nearer than `reach` count.
    int first = std::max(0, static_cast<int>(centre - reach + 0.5));
    const int end = std::min(input_size, static_cast<int>(centre + reach + 0.5));
    first = std::min(first, input_size - 1);
    exact.clear();
    for (int k = first; k < std::max(end, first + 1); ++k) {
      const double distance = std::abs(k + 0.5 - centre) / reach;
      exact.push_back(std::max(1.0 - distance, 1e-6));
    }
    ENSURE(exact.size() <= axis.taps, "the triangle covers at most 2 reach + 1 pixels");
    axis.first[static_cast<std::size_t>(i)] = first;
    put_weights(exact, axis.weights.data() + static_cast<std::size_t>(i) * axis.taps);
  }
}

// Blends rows to one row of the output, still with the image's width. Rows are contiguous, so the
// compiler vectorises this loop; therefore the vertical direction comes first.
void Resampler::blend_rows(const RgbImage& image, int y, int column_first, int column_count) {
  const auto values = static_cast<std::size_t>(column_count) * 3;
  const std::size_t stride = static_cast<std::size_t>(image.width) * 3;
  const auto row = static_cast<std::size_t>(y);
  std::fill(sums_.begin(), sums_.end(), kHalf);
  for (std::size_t k = 0; k < vertical_.taps; ++k) {
    const std::int32_t weight = vertical_.weights[row * vertical_.taps + k];
    if (weight == 0) {
      continue;
    }
    const std::size_t line = static_cast<std::size_t>(vertical_.first[row]) + k;
    const std::uint8_t* from =
        image.pixels.data() + line * stride + static_cast<std::size_t>(column_first) * 3;
    std::int32_t* to = sums_.data();
    for (std::size_t i = 0; i < values; ++i) {
      to[i] += weight * from[i];
    }
  }
  for (std::size_t i = 0; i < values; ++i) {
    row_[i] = static_cast<std::uint8_t>(sums_[i] >> kWeightBits);
  }
}

void Resampler::blend_columns(int side, int y, int column_first,
                              std::span<std::uint8_t> output) const {
  const auto plane = static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  std::uint8_t* to = output.data() + static_cast<std::size_t>(y) * static_cast<std::size_t>(side);
  for (std::size_t i = 0; i < static_cast<std::size_t>(side); ++i) {
    const std::int32_t* weights = horizontal_.weights.data() + i * horizontal_.taps;
    const std::uint8_t* from =
        row_.data() + static_cast<std::size_t>(horizontal_.first[i] - column_first) * 3;
    std::int32_t red = 0;
    std::int32_t green = 0;
    std::int32_t blue = 0;
    for (std::size_t k = 0; k < horizontal_.taps; ++k, from += 3) {
      red += weights[k] * from[0];
      green += weights[k] * from[1];
      blue += weights[k] * from[2];
    }
    to[i] = to_byte(red);
    to[plane + i] = to_byte(green);
    to[2 * plane + i] = to_byte(blue);
  }
}

void Resampler::scale(const RgbImage& image, const ImagePart& part, int side,
                      std::span<std::uint8_t> output) {
  ENSURE(image.width > 0 && image.height > 0 && side > 0 && part.width > 0 && part.height > 0,
         "the image is not empty");
  ENSURE(image.pixels.size() == 3 * static_cast<std::size_t>(image.width) *
                                    static_cast<std::size_t>(image.height) &&
             output.size() == 3 * static_cast<std::size_t>(side) * static_cast<std::size_t>(side),
         "three bytes a pixel");
  plan(part.left, part.width, image.width, side, horizontal_);
  plan(part.top, part.height, image.height, side, vertical_);
  const int column_first = horizontal_.first.front();
  const int column_end =
      std::min(image.width, horizontal_.first.back() + static_cast<int>(horizontal_.taps));
  const int column_count = column_end - column_first;
  const std::size_t values = static_cast<std::size_t>(column_count) * 3;
  sums_.resize(values);
  // Behind the last column the weights are zero, but they are multiplied all the same.
  row_.assign(values + 3 * horizontal_.taps, 0);
  for (int y = 0; y < side; ++y) {
    blend_rows(image, y, column_first, column_count);
    blend_columns(side, y, column_first, output);
  }
}

}  // namespace mayfly::datasets
