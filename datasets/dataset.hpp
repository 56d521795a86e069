#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "base/result.hpp"
#include "datasets/core/augmentation.hpp"
#include "datasets/core/left_out.hpp"
#include "datasets/core/sample_stream.hpp"

namespace mayfly::datasets {

class PeerStores;

/// The pass over the data set for which an image is read. Together with the sample's index it
/// determines all random draws.
struct EpochKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
};

/// An indexed set of labelled RGB images, which are read as squares of one size. There are two
/// kinds: images of that size that are decoded in memory (reading them cannot fail), and JPEGs of
/// any size that are decoded each time. Immutable after opening, so any thread may read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// S: height and width in pixels of the images that are read.
  [[nodiscard]] virtual int image_size() const = 0;
  /// Sample `index` as evaluation sees it, 3 x S x S bytes (CHW) into `pixels`. Errors name the
  /// image.
  [[nodiscard]] virtual Result<void> read(std::size_t index,
                                          std::span<std::uint8_t> pixels) const = 0;
  /// The same as training sees it in one epoch. Returns the crop and flip that the caller still has
  /// to apply when it normalises the pixels. A pure function of the key, the index and the image.
  [[nodiscard]] virtual Result<Augmentation> read_for_training(
      std::size_t index, const EpochKey& key, std::span<std::uint8_t> pixels) const;
  /// The calling thread will read `count` samples next, from this position of the stream on: images
  /// that must be fetched from other hosts are fetched together. Reading without this call has the
  /// same result.
  virtual void fetch_ahead(const SampleStream& stream, std::uint64_t position,
                           std::size_t count) const;
  [[nodiscard]] virtual std::uint16_t label(std::size_t index) const = 0;
  /// How many bytes one reading takes from storage: those of the JPEG, else of the pixels.
  [[nodiscard]] virtual std::uint64_t stored_bytes(std::size_t index) const;
};

/// Training and test part of a data set, with the properties that the network needs.
struct DatasetPair {
  std::string name;  ///< "cifar10", "cifar100", "folder", "images" (of any size), "procedural"
  int classes = 0;
  std::vector<std::string> class_names;
  std::array<float, 3> mean{};  ///< per channel, of pixels in [0, 1]
  std::array<float, 3> deviation{};
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  Digest digest;       ///< of the training content; in the job's fingerprint
  Digest test_digest;  ///< of the test content, likewise
  Digest files;        ///< of encoded images: of names, sizes and times of their files on this host
  LeftOut left_out;
  /// Each read decodes a JPEG, so several loader threads are useful.
  bool encoded = false;
  std::shared_ptr<PeerStores> peers;  ///< of OpenOptions::store_host; null = none. Also the set's
};

/// True once the process should end instead of going on with long work; any thread.
using CalledOff = std::function<bool()>;

struct OpenOptions {
  bool skip_corrupt = false;  ///< skip unusable images and name them, instead of failing
  /// Input resolution in pixels; 0 = the images' own size if all have one small size.
  int image_size = 0;
  int usual_image_size = 224;  ///< used if image_size is 0 and the images have different sizes
  std::uint64_t seed = 0;      ///< of a procedural set
  /// Folder for the decoded form of an image folder or tar, so that each is decoded once; empty =
  /// none.
  std::string cache_dir;
  /// Memory for encoded training images, which the processes of the host share (image_store.hpp),
  /// in bytes; 0 = none. Images that are decoded once are in memory without it.
  std::uint64_t store_bytes = 0;
  bool store_is_unshared = false;  ///< no other process shares the store
  /// With a store: the interface at which other hosts ask for its images; empty = they cannot.
  std::string store_host{};
  /// Whether the process should end instead: reading all headers, decoding, or waiting for another
  /// process that does so may take long. Any thread; empty = never.
  CalledOff is_called_off{};
};

/// Opens `spec`: a folder with CIFAR-10 or CIFAR-100 binary files (also inside the official
/// sub-folder), an image folder (train/CLASS/*.jpg, test/CLASS/*.jpg), a tar of one (.tar, .tar.gz,
/// .tar.xz), or "procedural[:SAMPLES]". The images of a folder or tar are decoded at once if all
/// are squares of image_size (of up to 64 pixels if that is 0), otherwise each time they are read.
/// Errors name the file, what was expected and what was found; skipped images are a warning in the
/// log. kAborted if it was called off.
[[nodiscard]] Result<DatasetPair> open_dataset(const std::string& spec, const OpenOptions& options);

/// Checks whether open_dataset() would find a data set in the folder or file `spec`, from names,
/// and for CIFAR also from sizes and labels: no image is read. Errors as there.
[[nodiscard]] Result<void> check_dataset(const std::string& spec);

/// Whether `spec` names a data set that is computed and has no files.
[[nodiscard]] bool is_procedural(const std::string& spec);

/// The files that open_dataset() reads.
struct DatasetFiles {
  std::string root;                ///< the folder that the names are relative to
  std::vector<std::string> names;  ///< ascending; sub-folders with '/'
  bool is_file = false;            ///< the data set is one tar, not the whole folder
};

/// The files of `spec`, without reading them. kNotFound if there is no data set, or, with the name,
/// if an image or a class is a link whose target does not exist; kInvalidInput for a procedural
/// one; kIo.
[[nodiscard]] Result<DatasetFiles> files_of_dataset(const std::string& spec);

}  // namespace mayfly::datasets
