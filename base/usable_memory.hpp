#pragma once

// Any thread.

#include <cstdint>

namespace mayfly {

/// Bytes of memory that this process can still take without swapping and without exceeding the
/// limit of its control group (versions 1 and 2, or of one above it). Pages of the page cache count
/// as free. UINT64_MAX if the kernel does not say it.
[[nodiscard]] std::uint64_t usable_memory();
/// The same without limits of control groups.
[[nodiscard]] std::uint64_t usable_memory_of_machine();

/// Memory that the calling thread is about to write to, from now until this object goes. Threads
/// that do so at the same time all see the same free bytes, and must not all count on them.
class MemoryClaim {
 public:
  explicit MemoryClaim(std::uint64_t bytes, std::uint64_t (*measure)() = usable_memory);
  ~MemoryClaim();
  MemoryClaim(const MemoryClaim&) = delete;
  MemoryClaim& operator=(const MemoryClaim&) = delete;

  /// Whether the bytes fit into what was usable when the first of the claims that overlap with this
  /// one was made, beside the others.
  [[nodiscard]] bool fits() const { return fits_; }
  /// What was usable then.
  [[nodiscard]] std::uint64_t usable() const { return usable_; }

 private:
  std::uint64_t usable_ = 0;
  bool fits_ = false;
};

}  // namespace mayfly
