#pragma once

// The kinds of data sets from which open_dataset() (datasets/dataset.hpp) chooses: CIFAR, image
// folders and tars, the procedural set. Each opens one and returns it as a DatasetPair. Any thread.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "datasets/dataset.hpp"

namespace mayfly::datasets {

/// One of the two official binary distributions (https://www.cs.toronto.edu/~kriz/cifar.html).
struct CifarFormat {
  std::string name;    ///< "cifar10", "cifar100"
  std::string folder;  ///< of the official archive
  int classes = 0;
  std::size_t label_bytes = 1;  ///< CIFAR-100 has the coarse label before the fine one
  std::vector<std::string> train_files;
  std::size_t records_per_train_file = 0;
  std::string test_file;
  std::size_t test_records = 0;
  std::string names_file;  ///< one class name per line; optional
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
};

[[nodiscard]] const CifarFormat& cifar10_format();
[[nodiscard]] const CifarFormat& cifar100_format();

/// The names of CIFAR-10's classes, by label.
[[nodiscard]] const std::vector<std::string>& cifar10_class_names();

/// The folder with `format`'s files: `folder` itself or the official sub-folder, whichever contains
/// at least one of them; nothing if neither does.
[[nodiscard]] std::optional<std::string> find_cifar(const CifarFormat& format,
                                                    const std::string& folder);

/// Maps the files in `folder`. kNotFound, kCorrupt or kIo with the file's name. For a wrong size
/// the error contains the expected and the actual number of bytes, for a wrong label the record and
/// the value.
[[nodiscard]] Result<DatasetPair> open_cifar(const CifarFormat& format, const std::string& folder);

// Image folders and tars. Small images of one size are decoded at once, like those of CIFAR; others
// stay encoded (encoded_set.hpp). Decoded images, or the sizes of encoded ones, are kept in
// OpenOptions::cache_dir.

/// Opens a folder with train/CLASS/*.jpg and test/CLASS/*.jpg.
[[nodiscard]] Result<DatasetPair> open_image_folder(const std::string& folder,
                                                    const OpenOptions& options);

/// Opens a tar of such a folder.
[[nodiscard]] Result<DatasetPair> open_image_tar(const std::string& path,
                                                 const OpenOptions& options);

/// The procedural data set (datasets/core/shape_image.hpp) with `train_count` training images and a
/// fifth as many test images (at least 1,000, at most 10,000). Each read generates the image again;
/// no images are stored.
[[nodiscard]] DatasetPair make_procedural(std::uint64_t train_count, std::uint64_t seed);

/// Opens "procedural" (20,000 images) or "procedural:SAMPLES" with 1 to 2^31 samples.
[[nodiscard]] Result<DatasetPair> open_procedural(const std::string& spec, std::uint64_t seed);

}  // namespace mayfly::datasets
