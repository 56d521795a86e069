#pragma once

// Scales a part of an image to the network's size: linear interpolation with antialiasing, in
// fixed-point arithmetic, so the bytes are the same on every machine.

#include <cstdint>
#include <span>
#include <vector>

#include "datasets/core/augmentation.hpp"

namespace mayfly::datasets {

/// An image in the layout of decoders: height x width x 3 bytes.
struct RgbImage {
  int width = 0;
  int height = 0;
  std::span<const std::uint8_t> pixels;
};

/// Scales images; its buffers are reused from call to call. One thread.
class Resampler {
 public:
  /// Scales `part` of `image` (in pixels of the image, and inside it) to side x side pixels, CHW
  /// bytes into `output` (3 x side x side). Each output pixel is a weighted mean with a triangle
  /// filter whose radius is one output pixel, or one input pixel when enlarging. Pixels beyond the
  /// border of the image have no weight.
  void scale(const RgbImage& image, const ImagePart& part, int side,
             std::span<std::uint8_t> output);

 private:
  // Output pixel i of one axis is the sum of weights[i * taps + k] * input[first[i] + k].
  struct Axis {
    std::size_t taps = 0;
    std::vector<int> first;
    std::vector<std::int32_t> weights;  // with kWeightBits binary places; each i's sum to 1
  };
  static void plan(double start, double length, int input_size, int side, Axis& axis);
  void blend_rows(const RgbImage& image, int y, int column_first, int column_count);
  void blend_columns(int side, int y, int column_first, std::span<std::uint8_t> output) const;

  Axis vertical_;
  Axis horizontal_;
  std::vector<std::int32_t> sums_;
  std::vector<std::uint8_t> row_;
};

}  // namespace mayfly::datasets
