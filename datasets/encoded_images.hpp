#pragma once

// The JPEGs of an image folder or a tar of one, before they are decoded:
//   train/CLASS/*.jpg and test/CLASS/*.jpg

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"

namespace mayfly::datasets {

/// Where the bytes of a JPEG are.
enum class ImagePlace : std::uint8_t {
  kFile,      ///< in a file of its own
  kMapped,    ///< in a tar that is mapped
  kUnpacked,  ///< in memory, from a compressed tar
};

/// One JPEG.
struct EncodedImage {
  bool test = false;
  std::string class_name;
  std::string file;  ///< last component of the name
  std::string path;  ///< of the file, or its name in the tar
  ImagePlace place = ImagePlace::kFile;
  ByteSpan content;                   ///< not for kFile
  std::shared_ptr<const void> owner;  ///< of `content`: the mapped tar, or the image's own bytes
  std::uint64_t size = 0;             ///< in bytes
  int width = 0;                      ///< in pixels; 0 until measured, see image_sizes.hpp
  int height = 0;
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

/// The bytes of one image: those of a file are read into `buffer`. kCorrupt if a file has changed
/// its size since it was listed; errors name it.
[[nodiscard]] Result<ByteSpan> bytes_of(const EncodedImage& image, Bytes& buffer);

/// What the image is called on every machine: "train/cat/1.jpg".
[[nodiscard]] std::string name_in_set(const EncodedImage& image);

/// What messages call the image: its path, or the tar's and its name in it.
[[nodiscard]] std::string name_of(const std::string& source, const EncodedImage& image);

/// All classes of the training part, in order.
[[nodiscard]] std::vector<std::string> class_names_of(const EncodedImages& images);

/// Finds all images of a tar: in place if it is not compressed (.tar), else (.tar.gz, .tar.xz)
/// unpacked into memory, at most 4 GiB.
[[nodiscard]] Result<EncodedImages> read_image_tar(const std::string& path);

/// What a decoded cache depends on: names, sizes and times of a folder's images; path, size and
/// time of a tar.
[[nodiscard]] Result<Digest> folder_key(const EncodedImages& images);
[[nodiscard]] Result<Digest> tar_key(const std::string& path);

}  // namespace mayfly::datasets
