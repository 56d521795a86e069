#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace mayfly::engine {

/// Memory for a packed state, or a part of one, that is about to be written as a whole. Not zeroed,
/// and ordinary pages: it lives for a step, beside workers that compute, and clearing huge pages
/// that nobody has used yet took longer than copying the state of a small network into them.
class PackedBytes {
 public:
  PackedBytes() = default;
  explicit PackedBytes(std::size_t size)
      : data_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}

  PackedBytes(PackedBytes&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  PackedBytes& operator=(PackedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> span() { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t size_ = 0;
};

}  // namespace mayfly::engine
