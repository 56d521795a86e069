#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "datasets/dataset.hpp"

namespace mayfly::datasets {

/// The procedural set (datasets/core/shape_image.hpp) with `train_count` training images and a
/// fifth as many, but 1,000 to 10,000, test images. Images are drawn anew at every read; nothing is
/// held.
[[nodiscard]] DatasetPair make_procedural(std::uint64_t train_count, std::uint64_t seed);

/// Opens "procedural" (20,000 images) or "procedural:SAMPLES" with 1 to 2^31 samples.
[[nodiscard]] Result<DatasetPair> open_procedural(const std::string& spec, std::uint64_t seed);

}  // namespace mayfly::datasets
