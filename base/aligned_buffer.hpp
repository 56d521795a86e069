#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace mayfly {

/// Zeroed memory aligned to 64 bytes; blocks of 2 MiB and more are aligned to, and advised as, huge
/// pages (fewer page faults, and the kernel frees them far sooner when the process is killed).
[[nodiscard]] void* allocate_aligned(std::size_t bytes);
void free_aligned(void* block, std::size_t bytes) noexcept;

/// A fixed-size array of trivially copyable elements in such memory. Movable, never resized.
template <typename T>
requires std::is_trivially_copyable_v<T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : data_(static_cast<T*>(allocate_aligned(size * sizeof(T)))), size_(size) {}
  ~AlignedBuffer() { free_aligned(data_, size_ * sizeof(T)); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] T* data() { return data_; }
  [[nodiscard]] const T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<T> span() { return {data_, size_}; }
  [[nodiscard]] std::span<const T> span() const { return {data_, size_}; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace mayfly
