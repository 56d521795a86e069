#include "engine/processes/resident_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace mayfly::engine {

Result<std::unique_ptr<ResidentMemory>> ResidentMemory::touch(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Error{Errc::kIo, std::string("resident_mib: ") + std::strerror(errno)};
  }
  (void)::madvise(memory, bytes, MADV_NOHUGEPAGE);  // a kernel without huge pages has nothing to do
  for (std::size_t offset = 0; offset < bytes; offset += kPage) {
    static_cast<volatile char*>(memory)[offset] = 1;
  }
  return std::unique_ptr<ResidentMemory>(new ResidentMemory(memory, bytes));
}

ResidentMemory::~ResidentMemory() {
  ::munmap(memory_, bytes_);
}

}  // namespace mayfly::engine
