#pragma once

// Paints the shapes of the synthetic images, small ones (shape_image.hpp) and photographs
// (photograph.hpp), on a canvas of any size. Lengths are in units of 1/32 of the canvas's shorter
// side unless they are in pixels. Uses only arithmetic that IEEE 754 specifies exactly, so that an
// image is the same on every machine. Pure; any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/random.hpp"

namespace mayfly::datasets {

using Colour = std::array<float, 3>;

/// An image that is being painted; the memory belongs to the caller.
struct Canvas {
  int width = 0;  ///< pixels
  int height = 0;
  std::array<std::span<float>, 3> channels{};  ///< width x height values each, 0 to 1 when visible

  [[nodiscard]] std::size_t pixels() const {
    return static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  }
  /// Pixels of one unit of length.
  [[nodiscard]] float unit() const;
};

/// A number in [low, high).
[[nodiscard]] float uniform(RandomStream& random, float low, float high);

/// A gradient between two similar colours on the whole canvas. Returns the first.
Colour paint_background(Canvas& canvas, RandomStream& random);
/// A short stroke or a small blob of any colour, anywhere.
void paint_clutter(Canvas& canvas, RandomStream& random);
/// The shape of class `label` (below kShapeClasses) near the middle, in a colour that differs from
/// the background's.
void paint_main(Canvas& canvas, RandomStream& random, int label, const Colour& background);

/// Where the bytes of a picture are: channel c of pixel p is at c * channel_step + p * pixel_step.
struct PixelLayout {
  std::size_t channel_step = 1;
  std::size_t pixel_step = 3;
};
/// Adds uniform noise of at most `amplitude` and rounds to bytes. One draw serves the three
/// channels of a pixel.
void finish_picture(const Canvas& canvas, RandomStream& random, float amplitude,
                    const PixelLayout& layout, std::span<std::uint8_t> bytes);

}  // namespace mayfly::datasets
