#pragma once

// The JPEGs of an image folder or a tar of one (train/CLASS/*.jpg and test/CLASS/*.jpg), before
// they are decoded. The header of each is read once, to find out which images are usable and how
// large they are.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"
#include "datasets/core/left_out.hpp"

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
  std::string path;  ///< path of the file, or its name in the tar
  ImagePlace place = ImagePlace::kFile;
  ByteSpan content;                   ///< not for kFile
  std::shared_ptr<const void> owner;  ///< of `content`: the mapped tar, or the image's own bytes
  std::uint64_t size = 0;             ///< in bytes
  int width = 0;                      ///< in pixels; 0 until measured
  int height = 0;
};

/// Sorted: training before test, then by class, then by file.
using EncodedImages = std::vector<EncodedImage>;

/// Parses a name such as "train/cat/1.jpg", with at most one folder before it and "./" in front.
/// False if the name has another form or does not end in .jpg or .jpeg.
[[nodiscard]] bool parse_image_name(const std::string& name, EncodedImage& image);

/// Whether a link of that name may stand for images: train or test, a class folder in one of them,
/// or an image. Names as above.
[[nodiscard]] bool may_stand_for_images(const std::string& name);
/// The error (kNotFound) for such a link in a folder whose target does not exist.
[[nodiscard]] Error lost_link(const std::string& path);

/// The error (kAborted) of a process that was asked to end while it opened a data set.
[[nodiscard]] Error called_off();

/// Sorts the images. kInvalidInput if there is no training or no test image, if a name occurs
/// twice, if a test class has no training images, or if there are more than 65,536 classes.
/// `source` is for messages.
[[nodiscard]] Result<void> arrange_images(const std::string& source, EncodedImages& images);

/// Lists the images of a folder (contents stay on disk). kNotFound, with the name, if an image or a
/// class is a link whose target does not exist.
[[nodiscard]] Result<EncodedImages> list_image_folder(const std::string& folder);

/// The encoded bytes of one image; those of a file are read into `buffer`. kIo if the size of the
/// file has changed since it was listed; errors name the file.
[[nodiscard]] Result<ByteSpan> bytes_of(const EncodedImage& image, Bytes& buffer);

/// The name of the image within the data set, equal on all machines: "train/cat/1.jpg".
[[nodiscard]] std::string name_in_set(const EncodedImage& image);

/// The name of the image in messages: its path, or the path of the tar and the name in it.
[[nodiscard]] std::string name_of(const std::string& source, const EncodedImage& image);

/// All classes of the training part, in order.
[[nodiscard]] std::vector<std::string> class_names_of(const EncodedImages& images);

/// Finds all images of a tar. They stay in place if the tar is not compressed (.tar); otherwise
/// (.tar.gz, .tar.xz) they are unpacked into memory, at most 4 GiB. kInvalidInput, with the name,
/// if an image or a folder of images is a link.
[[nodiscard]] Result<EncodedImages> read_image_tar(const std::string& path);

/// Keys of the cache of decoded images: a hash of paths, sizes and times of a folder's images, or
/// of a tar. Relative and absolute paths of one file are the same. A cache with another key is not
/// used.
[[nodiscard]] Result<Digest> folder_key(const EncodedImages& images);
[[nodiscard]] Result<Digest> tar_key(const std::string& path);

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
/// kAborted if `is_called_off` (any thread; empty = never) returned true.
[[nodiscard]] Result<MeasuredImages> measure_images(
    const std::string& source, EncodedImages images, bool skip_corrupt,
    const std::string& cache_file, const std::function<bool()>& is_called_off = {});

/// Removes images with a side below `side_min` pixels from the set if skip_corrupt is set;
/// otherwise the first one is an error that names it.
[[nodiscard]] Result<void> refuse_small_images(const std::string& source, int side_min,
                                               bool skip_corrupt, MeasuredImages& measured);

}  // namespace mayfly::datasets
