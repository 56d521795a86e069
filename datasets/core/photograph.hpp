#pragma once

// The images of synthetic photographs, made from a seed. Reading, decoding and scaling them takes
// as long as for ImageNet (sizes in pixels and in bytes are spread similarly). The class is a shape
// among clutter, as in the procedural set (shape_image.hpp), so a network can learn it. An image is
// a pure function of (seed, part, index) and of the usual size, the same on every machine.

#include <cstdint>
#include <vector>

#include "datasets/core/shape_image.hpp"

namespace mayfly::datasets {

/// The longer side that most photographs have, in pixels, as in ImageNet.
inline constexpr int kPhotographSide = 500;
inline constexpr int kPhotographSideMin = 32;
/// A square three times as large has no more pixels than an image of a data set may have, 2^26.
inline constexpr int kPhotographSideMax = 2730;

/// A picture and how it is to be stored.
struct Photograph {
  int width = 0;  ///< pixels; the shorter side is at least 16
  int height = 0;
  int label = 0;                     ///< below kShapeClasses; the classes take turns
  int quality = 0;                   ///< for the JPEG encoder, of 100
  std::vector<std::uint8_t> pixels;  ///< height x width x 3 bytes
};

/// Draws image `index`. `side` (kPhotographSideMin to kPhotographSideMax) is the longer side of
/// most of them; a tenth are larger, up to three times, and a fifth smaller. About 5 ms for 500
/// pixels.
[[nodiscard]] Photograph render_photograph(std::uint64_t seed, ShapePart part, std::uint64_t index,
                                           int side);

}  // namespace mayfly::datasets
