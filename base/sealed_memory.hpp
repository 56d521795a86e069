#pragma once

// Memory that two processes of one host share: one makes it and hands its descriptor over through a
// Unix-domain socket, both map it. Its size is sealed, so that neither can shrink it while the
// other uses it, which would end that process by SIGBUS. One thread at a time for each side; the
// two sides must synchronise their accesses themselves.

#include <cstddef>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {

/// Mapped for reading and writing; unmapped when destroyed.
class SealedMemory {
 public:
  SealedMemory() = default;
  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory& operator=(SealedMemory&& other) noexcept;
  ~SealedMemory();

  /// So many bytes of zeros; `fd` is for the other side. They take up memory where they are
  /// touched, or when reserve_memory() says so. Behind them there are `unmapped` more, which are
  /// read and written by way of `fd`. kIo if the system gives none.
  [[nodiscard]] static Result<SealedMemory> create(std::size_t bytes, UniqueFd& fd,
                                                   std::size_t unmapped = 0);
  /// Maps what the other side has made. kCorrupt if it is not sealed memory of that size.
  [[nodiscard]] static Result<SealedMemory> map(int fd, std::size_t bytes,
                                                std::size_t unmapped = 0);

  [[nodiscard]] bool valid() const { return memory_ != nullptr; }
  /// Aligned to a page.
  [[nodiscard]] std::byte* data() const { return memory_; }

 private:
  SealedMemory(std::byte* memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Takes the memory behind a part of it, so that touching it later cannot fail for want of some.
/// False if the system has none.
[[nodiscard]] bool reserve_memory(int fd, std::size_t first, std::size_t bytes);
/// Gives the memory behind whole pages of it back to the system; they are zeros then.
void release_memory(int fd, std::size_t first, std::size_t bytes);

}  // namespace mayfly
