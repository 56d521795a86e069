#pragma once

// Augmentation of training images: pad by 4, crop back to size, flip, normalise. The random draws
// are a function of sample and epoch, never of a worker, so the pixels are the same whichever
// worker prepares them.

#include <array>
#include <cstdint>
#include <span>

#include "base/random.hpp"

namespace mayfly::datasets {

/// Pixels added on every side before the crop.
inline constexpr int kCropPadding = 4;

/// One sample's draws in one epoch.
struct Augmentation {
  int crop_x = kCropPadding;  ///< left edge of the crop in the padded image, 0 to 8
  int crop_y = kCropPadding;  ///< top edge
  bool flip = false;          ///< mirrored left to right, after the crop

  friend bool operator==(const Augmentation&, const Augmentation&) = default;
};

/// The source of a job's draws. It is derived once on the CPU; the draws themselves may be made on
/// a GPU.
[[nodiscard]] constexpr CounterRandom augmentation_source(std::uint64_t seed) {
  return CounterRandom(seed).split("augmentation");
}

/// The draws of `sample` in `epoch`: uniform and independent.
[[nodiscard]] constexpr Augmentation draw_augmentation(CounterRandom source, std::uint64_t epoch,
                                                       std::uint64_t sample) {
  constexpr std::uint64_t kPlaces = 2 * kCropPadding + 1;
  const std::uint64_t bits = source.split(epoch).bits(sample);
  Augmentation draw;
  draw.flip = (bits & 1) != 0;
  draw.crop_x = static_cast<int>((((bits >> 1) & 0x7fffffffU) * kPlaces) >> 31);
  draw.crop_y = static_cast<int>(((bits >> 32) * kPlaces) >> 32);
  return draw;
}

/// The same as a pure function of three numbers.
[[nodiscard]] Augmentation draw_augmentation(std::uint64_t seed, std::uint64_t epoch,
                                             std::uint64_t sample);

/// Turns bytes into the network's input: (byte / 255 - mean) / deviation, by table.
class Normaliser {
 public:
  /// By channel, then by byte.
  using Table = std::array<std::array<float, 256>, 3>;

  Normaliser(const std::array<float, 3>& mean, const std::array<float, 3>& deviation);

  /// Crops, flips and normalises one image, CHW bytes to CHW floats, in one pass. Pixels of the
  /// crop outside the image are 0 after normalising, which is the mean colour. Both spans have 3 x
  /// size x size elements, `size` >= 4. With the default Augmentation it only normalises.
  void apply(const Augmentation& augmentation, int size, std::span<const std::uint8_t> pixels,
             std::span<float> output) const;

  [[nodiscard]] const Table& table() const { return table_; }

 private:
  Table table_;
};

}  // namespace mayfly::datasets
