#pragma once

// The JPEGs of an image folder or a tar of one, before they are decoded:
//   train/CLASS/*.jpg and test/CLASS/*.jpg

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"

namespace mayfly::datasets {

/// One JPEG. Its bytes are in `content` if `in_memory` (from a tar), else in the file `path`.
struct EncodedImage {
  bool test = false;
  std::string class_name;
  std::string file;  ///< last component of the name
  std::string path;  ///< of the file, or its name in the tar
  bool in_memory = false;
  Bytes content;
};

/// Sorted: training before test, then by class, then by file.
using EncodedImages = std::vector<EncodedImage>;

/// Takes "train/cat/1.jpg" apart, with at most one folder before it and "./" in front; false if the
/// name has another form or does not end in .jpg or .jpeg.
[[nodiscard]] bool parse_image_name(const std::string& name, EncodedImage& image);

/// Sorts. kInvalidInput if there is no training or no test image, if a name comes twice, a test
/// class has no training images or there are more than 65,536 classes. `source` is for messages.
[[nodiscard]] Result<void> arrange_images(const std::string& source, EncodedImages& images);

/// Lists the images of a folder (contents stay on disk).
[[nodiscard]] Result<EncodedImages> list_image_folder(const std::string& folder);

/// Reads all images of a tar (.tar, .tar.gz, .tar.xz) into memory.
[[nodiscard]] Result<EncodedImages> read_image_tar(const std::string& path);

/// What a decoded cache depends on: names, sizes and times of a folder's images; path, size and
/// time of a tar.
[[nodiscard]] Result<Digest> folder_key(const EncodedImages& images);
[[nodiscard]] Result<Digest> tar_key(const std::string& path);

}  // namespace mayfly::datasets
