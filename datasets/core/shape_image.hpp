#pragma once

// The images of the procedural data set: one of ten shapes at a random place, size, angle and
// colour, among clutter and noise. An image is a pure function of (seed, part, index). It uses only
// arithmetic that IEEE 754 specifies exactly, so its bytes are the same on every machine.

#include <cstdint>
#include <span>

namespace mayfly::datasets {

inline constexpr int kShapeImageSize = 32;
inline constexpr int kShapeClasses = 10;
inline constexpr std::uint32_t kShapeImageVersion = 1;  ///< grows when any image changes

/// Names of the classes, by label.
inline constexpr const char* kShapeNames[kShapeClasses] = {
    "disc", "ring", "square", "frame", "triangle", "cross", "star", "bar", "crescent", "stripes"};

enum class ShapePart : std::uint8_t { kTrain, kTest };

/// The label of image `index`; the classes take turns.
[[nodiscard]] constexpr std::uint8_t shape_label(std::uint64_t index) {
  return static_cast<std::uint8_t>(index % kShapeClasses);
}

/// Draws image `index` as 3 x 32 x 32 bytes (CHW) into `pixels`. About 15 us.
void render_shape_image(std::uint64_t seed, ShapePart part, std::uint64_t index,
                        std::span<std::uint8_t> pixels);

}  // namespace mayfly::datasets
