#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "datasets/dataset.hpp"

namespace mayfly::datasets {

/// The procedural data set (datasets/core/shape_image.hpp) with `train_count` training images and a
/// fifth as many test images (at least 1,000, at most 10,000). Each read generates the image again;
/// no images are stored.
[[nodiscard]] DatasetPair make_procedural(std::uint64_t train_count, std::uint64_t seed);

/// Opens "procedural" (20,000 images) or "procedural:SAMPLES" with 1 to 2^31 samples.
[[nodiscard]] Result<DatasetPair> open_procedural(const std::string& spec, std::uint64_t seed);

}  // namespace mayfly::datasets
