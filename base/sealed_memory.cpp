#include "base/sealed_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/system_error.hpp"

namespace mayfly {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::byte* map_shared(int fd, std::size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

Error no_memory(const char* what) {
  return system_error(std::string("no shared memory: ") + what, errno);
}

/// If the pool of huge pages is empty, a process that accesses such memory would be killed.
bool has_ordinary_pages(int fd) {
  struct statfs system {};
  return ::fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

}  // namespace

SealedMemory::SealedMemory(SealedMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

SealedMemory& SealedMemory::operator=(SealedMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SealedMemory::~SealedMemory() {
  if (memory_ != nullptr) {
    ::munmap(memory_, bytes_);
  }
}

Result<SealedMemory> SealedMemory::create(std::size_t bytes, UniqueFd& fd, std::size_t unmapped) {
  UniqueFd made(::memfd_create("mayfly", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.valid() || ::ftruncate(made.get(), static_cast<off_t>(bytes + unmapped)) != 0 ||
      ::fcntl(made.get(), F_ADD_SEALS, kSeals) != 0) {
    return no_memory("memfd");
  }
  std::byte* const memory = map_shared(made.get(), bytes);
  if (memory == nullptr) {
    return no_memory("mmap");
  }
  fd = std::move(made);
  return SealedMemory(memory, bytes);
}

Result<SealedMemory> SealedMemory::map(int fd, std::size_t bytes, std::size_t unmapped) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (::fstat(fd, &status) != 0 || status.st_size != static_cast<off_t>(bytes + unmapped) ||
      seals < 0 || (seals & kSeals) != kSeals || !has_ordinary_pages(fd)) {
    return Error{Errc::kCorrupt, "the other side's shared memory has a wrong size, seals or pages"};
  }
  std::byte* const memory = map_shared(fd, bytes);
  if (memory == nullptr) {
    return no_memory("mmap");
  }
  return SealedMemory(memory, bytes);
}

bool reserve_memory(int fd, std::size_t first, std::size_t bytes) {
  int failed = EINTR;
  while (failed == EINTR) {
    const int result = ::fallocate(fd, 0, static_cast<off_t>(first), static_cast<off_t>(bytes));
    failed = result == 0 ? 0 : errno;
  }
  return failed == 0;
}

void release_memory(int fd, std::size_t first, std::size_t bytes) {
  while (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                     static_cast<off_t>(bytes)) != 0 &&
         errno == EINTR) {
  }
}

}  // namespace mayfly
