#pragma once

// Augmentation of training images. Small images are padded by 4, cropped back to their size,
// flipped and normalised. Photographs, which have any size, are cropped at random for training
// (Szegedy et al., "Going deeper with convolutions", 2015, section 6) and around the centre for
// evaluation. The random draws are a function of sample and epoch, never of a worker, and use only
// arithmetic that has the same bits on every machine, so the pixels are the same whichever worker
// prepares them.

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

/// A part of an image, in pixels of the image; need not lie on whole pixels.
struct ImagePart {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;

  friend bool operator==(const ImagePart&, const ImagePart&) = default;
};

/// One sample's draws in one epoch.
struct ResizedCrop {
  ImagePart part;     ///< of whole pixels
  bool flip = false;  ///< mirrored left to right

  friend bool operator==(const ResizedCrop&, const ResizedCrop&) = default;
};

/// The draws of `sample` in `epoch` for an image of `width` x `height` pixels (1 to 65,535 each):
/// an area of 8 to 100 % of the image, with a ratio of width to height from 3/4 to 4/3, evenly on a
/// logarithmic scale, anywhere in the image. A draw that does not fit is repeated, up to ten
/// times; after that the largest centred part whose ratio is in the range is used. A pure function
/// of the five numbers.
[[nodiscard]] ResizedCrop draw_resized_crop(std::uint64_t seed, std::uint64_t epoch,
                                            std::uint64_t sample, int width, int height);

/// The part that evaluation uses: the centred square whose side is 7/8 of the image's shorter side
/// (for 224 pixels this equals scaling the shorter side to 256 and cropping the centre).
[[nodiscard]] ImagePart centre_part(int width, int height);

}  // namespace mayfly::datasets
