#pragma once

// Reads the header of every JPEG of a data set once, to find out which images are usable and how
// large they are.

#include <string>

#include "datasets/core/left_out.hpp"
#include "datasets/encoded_images.hpp"

namespace mayfly::datasets {

/// The images of a set after their headers were read.
struct MeasuredImages {
  EncodedImages images;                  ///< usable ones, with width and height
  std::vector<std::string> class_names;  ///< of all training images, usable or not
  LeftOut left_out;
};

/// Measures all images on a few threads. The first unusable image in order (a damaged header, four
/// channels) is an error that names it; with skip_corrupt unusable images are skipped and noted.
/// kCorrupt if no training or no test image is left. `cache_file`, unless empty, stores the result
/// for the next time; the caller chooses a name that is unique for these images and skip_corrupt.
[[nodiscard]] Result<MeasuredImages> measure_images(const std::string& source, EncodedImages images,
                                                    bool skip_corrupt,
                                                    const std::string& cache_file);

/// Removes images with a side below `side_min` pixels from the set if skip_corrupt is set;
/// otherwise the first one is an error that names it.
[[nodiscard]] Result<void> refuse_small_images(const std::string& source, int side_min,
                                               bool skip_corrupt, MeasuredImages& measured);

}  // namespace mayfly::datasets
