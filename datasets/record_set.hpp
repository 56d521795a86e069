#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "datasets/dataset.hpp"

namespace mayfly::datasets {

/// Records that are stored one after the other in memory: a few label bytes, then 3 x S x S pixel
/// bytes. This is the format of CIFAR's files and of the cache of decoded images.
struct RecordLayout {
  int image_size = 32;
  std::size_t label_bytes = 1;
  /// The label is the last two of the label bytes, little-endian; else the last one.
  bool wide_labels = false;

  [[nodiscard]] std::size_t pixel_bytes() const {
    const auto side = static_cast<std::size_t>(image_size);
    return 3 * side * side;
  }
  [[nodiscard]] std::size_t record_bytes() const { return label_bytes + pixel_bytes(); }
};

/// A range of memory with whole records, kept alive by its owner (a mapped file, a buffer).
struct RecordChunk {
  std::shared_ptr<const void> owner;
  std::span<const std::uint8_t> records;
};

/// A data set that reads from such memory in place.
class RecordSet final : public Dataset {
 public:
  /// Every chunk holds a whole number of records.
  RecordSet(RecordLayout layout, std::vector<RecordChunk> chunks);

  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] int image_size() const override { return layout_.image_size; }
  [[nodiscard]] Result<void> read(std::size_t index, std::span<std::uint8_t> pixels) const override;
  [[nodiscard]] std::uint16_t label(std::size_t index) const override;

 private:
  [[nodiscard]] const std::uint8_t* record(std::size_t index) const;

  RecordLayout layout_;
  std::vector<RecordChunk> chunks_;
  std::size_t size_ = 0;
};

/// A whole file mapped read-only. Local workers that map the same file share its memory. The file
/// must not be changed in place while it is mapped (replacing it by rename is fine). Immutable, so
/// any thread may read.
class MappedFile {
 public:
  /// Fails with the path: kNotFound, kIo, or kInvalidInput if it is no regular file.
  [[nodiscard]] static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return {data_, size_}; }
  /// For reading the mapped file, even if its name belongs to another file now.
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  MappedFile(UniqueFd fd, const std::uint8_t* data, std::size_t size)
      : fd_(std::move(fd)), data_(data), size_(size) {}

  UniqueFd fd_;
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace mayfly::datasets
