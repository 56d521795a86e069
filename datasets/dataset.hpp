#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "base/result.hpp"

namespace mayfly::datasets {

/// A fixed, indexed set of labelled square RGB images held in memory. Immutable after opening, so
/// any thread may read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// Height = width in pixels.
  [[nodiscard]] virtual int image_size() const = 0;
  /// Copies sample `index` as 3 x S x S bytes (CHW) into `pixels`.
  virtual void read(std::size_t index, std::span<std::uint8_t> pixels) const = 0;
  [[nodiscard]] virtual std::uint16_t label(std::size_t index) const = 0;
};

/// Training and test part of a data set, with what the network needs to know about it.
struct DatasetPair {
  std::string name;  ///< "cifar10", "cifar100", "folder", "procedural"
  int classes = 0;
  std::vector<std::string> class_names;
  std::array<float, 3> mean{};  ///< per channel, of pixels in [0, 1]
  std::array<float, 3> deviation{};
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  Digest digest;            ///< of the training content; in the job's fingerprint
  std::size_t skipped = 0;  ///< corrupt images left out (skip_corrupt)
};

struct OpenOptions {
  bool skip_corrupt = false;  ///< leave corrupt images out and count them, instead of failing
  std::uint64_t seed = 0;     ///< of a procedural set
  /// Folder for the decoded form of an image folder or tar, so that each is decoded once; empty =
  /// none.
  std::string cache_dir;
};

/// Opens `spec`: a folder with CIFAR-10 or CIFAR-100 binary files (also inside the official
/// sub-folder), an image folder (train/CLASS/*.jpg, test/CLASS/*.jpg), a tar of one (.tar, .tar.gz,
/// .tar.xz), or "procedural[:SAMPLES]". Errors name the file, what was expected and what was found.
[[nodiscard]] Result<DatasetPair> open_dataset(const std::string& spec, const OpenOptions& options);

}  // namespace mayfly::datasets
