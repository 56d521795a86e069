#pragma once

#include <string>

#include "base/result.hpp"
#include "datasets/dataset.hpp"

namespace mayfly::datasets {

// Image folders and tars. Small images of one size are decoded at once, like those of CIFAR; others
// stay encoded (encoded_set.hpp). Decoded images, or the sizes of encoded ones, are kept in
// OpenOptions::cache_dir.

/// Opens a folder with train/CLASS/*.jpg and test/CLASS/*.jpg.
[[nodiscard]] Result<DatasetPair> open_image_folder(const std::string& folder,
                                                    const OpenOptions& options);

/// Opens a tar of such a folder.
[[nodiscard]] Result<DatasetPair> open_image_tar(const std::string& path,
                                                 const OpenOptions& options);

}  // namespace mayfly::datasets
