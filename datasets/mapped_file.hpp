#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"

namespace mayfly::datasets {

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

 private:
  MappedFile(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace mayfly::datasets
