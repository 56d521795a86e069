#include "base/aligned_buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace mayfly {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

void* allocate_aligned(std::size_t bytes) {
  const bool huge = bytes >= kHugePageBytes;
  const std::size_t alignment = huge ? kHugePageBytes : 64;
  const std::size_t size = round_up(bytes == 0 ? 1 : bytes, alignment);
  void* block = std::aligned_alloc(alignment, size);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  if (huge) {
    ::madvise(block, size, MADV_HUGEPAGE);
  }
  std::memset(block, 0, size);
  return block;
}

void free_aligned(void* block, std::size_t) noexcept {
  std::free(block);
}

}  // namespace mayfly
