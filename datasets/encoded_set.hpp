#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "datasets/core/augmentation.hpp"
#include "datasets/dataset.hpp"
#include "datasets/encoded_images.hpp"
#include "datasets/image_store.hpp"
#include "datasets/peer_stores.hpp"
#include "datasets/record_set.hpp"

namespace mayfly::datasets {

/// Colours of ImageNet's training images (as torchvision's networks expect them).
inline constexpr std::array<float, 3> kImagenetMean = {0.485F, 0.456F, 0.406F};
inline constexpr std::array<float, 3> kImagenetDeviation = {0.229F, 0.224F, 0.225F};

/// A data set of JPEGs that stay encoded, in a folder or in a mapped tar. Every read decodes the
/// image and scales the requested part. Needs about 50 bytes of memory per image. Reading fails if
/// a file is missing, has changed or is corrupt. With skip_corrupt a corrupt image is read as the
/// mean colour instead (the number of samples may not change during a job) and named in the log
/// once.
class EncodedSet final : public Dataset {
 public:
  struct Options {
    std::string source;  ///< the folder or the tar
    int image_size = 224;
    bool skip_corrupt = false;
    std::shared_ptr<ImageStore> store = nullptr;  ///< of the training images; null = none
    std::shared_ptr<PeerStores> peers = nullptr;  ///< other hosts' stores; null = none
  };
  /// `images` are the training or the test images; they are in files or mapped, and measured.
  EncodedSet(Options options, std::vector<std::string> class_names,
             std::span<const EncodedImage> images);

  [[nodiscard]] std::size_t size() const override { return samples_.size(); }
  [[nodiscard]] int image_size() const override { return options_.image_size; }
  [[nodiscard]] Result<void> read(std::size_t index, std::span<std::uint8_t> pixels) const override;
  [[nodiscard]] Result<Augmentation> read_for_training(
      std::size_t index, const EpochKey& key, std::span<std::uint8_t> pixels) const override;
  void fetch_ahead(const SampleStream& stream, std::uint64_t position,
                   std::size_t count) const override;
  [[nodiscard]] std::uint16_t label(std::size_t index) const override {
    return samples_[index].label;
  }
  [[nodiscard]] std::uint64_t stored_bytes(std::size_t index) const override {
    return samples_[index].size;
  }

 private:
  struct Sample {
    const std::byte* content = nullptr;  // in the tar; null = a file
    std::uint32_t size = 0;
    std::uint32_t name_end = 0;  // end in names_; the name begins where the previous one ends
    std::uint16_t width = 0;
    std::uint16_t height = 0;
    std::uint16_t label = 0;
  };

  [[nodiscard]] std::string name_of_sample(std::size_t index) const;
  [[nodiscard]] Result<ByteSpan> bytes_of_sample(std::size_t index, Bytes& buffer) const;
  [[nodiscard]] ByteSpan arrived_ahead(std::size_t index) const;
  [[nodiscard]] Result<ByteSpan> read_sample(std::size_t index, Bytes& buffer) const;
  [[nodiscard]] Result<void> decode_part(std::size_t index, const ImagePart& part,
                                         std::span<std::uint8_t> pixels) const;
  [[nodiscard]] Result<void> read_part(std::size_t index, const ImagePart& part,
                                       std::span<std::uint8_t> pixels) const;
  void replace(std::size_t index, const std::string& reason, std::span<std::uint8_t> pixels) const;

  const std::uint64_t number_;  // no other set of the process has it
  Options options_;
  std::vector<std::string> class_names_;
  bool test_ = false;
  std::shared_ptr<const void> owner_;  // owner of a tar's bytes
  // With a store: the mapped tar. Images are read from its file instead, because otherwise their
  // bytes would be in memory twice.
  const MappedFile* tar_ = nullptr;
  std::vector<Sample> samples_;
  std::string names_;  // the files' names, without their folders

  mutable std::mutex mutex_;
  mutable std::set<std::size_t> replaced_;  // guarded by mutex_
};

/// The data set of all images, normalised with ImageNet's colours. Its digest covers names, labels
/// and sizes, in bytes and in pixels, because reading all contents would take minutes. Copies on
/// several machines have the same digest.
[[nodiscard]] DatasetPair make_encoded_pair(const EncodedSet::Options& options,
                                            MeasuredImages measured);

}  // namespace mayfly::datasets
