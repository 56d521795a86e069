#pragma once

// Makes a set of synthetic photographs (datasets/core/photograph.hpp) on disk, so that measurements
// with many and large files can be repeated anywhere.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "datasets/core/photograph.hpp"

namespace mayfly::datasets {

struct PhotographSet {
  std::uint64_t images = 5'000;  ///< for training; at least 1
  std::uint64_t seed = 1;
  int side = kPhotographSide;  ///< of most images, see render_photograph()
  unsigned threads = 1;        ///< at least 1
};

/// How many test images there are besides so many training images: a 25th as in ImageNet, but at
/// least one of each class.
[[nodiscard]] std::uint64_t test_photographs(std::uint64_t training);

struct MadePhotographs {
  std::uint64_t images = 0;  ///< training and test images together
  std::uint64_t bytes = 0;   ///< of their files
};

/// Writes train/CLASS/NUMBER.jpg and test/CLASS/NUMBER.jpg below `folder`, the same bytes for the
/// same set with one version of libjpeg-turbo. They are written to FOLDER.making, which is renamed
/// at the end; if the process is killed, the next call for this folder begins anew. kInvalidInput
/// if `folder`, or the target of such a link, is not empty, or is a mount point; kRefused if
/// another process is making it; kIo for errors of the system; then nothing is left behind. Blocks;
/// starts and ends `threads` threads.
[[nodiscard]] Result<MadePhotographs> make_photographs(const std::string& folder,
                                                       const PhotographSet& set);

}  // namespace mayfly::datasets
