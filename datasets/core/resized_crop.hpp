#pragma once

// The crop of a photograph, for data sets whose images have any size. Training uses a random crop
// (Szegedy et al., "Going deeper with convolutions", 2015, section 6), evaluation the centre. The
// draws are a function of sample and epoch, never of a worker, and use only arithmetic that has the
// same bits on every machine.

#include <cstdint>

namespace mayfly::datasets {

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
