#include "datasets/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::datasets {
Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  // Non-blocking, because opening a named pipe would block before it is refused.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    return file_error("cannot open", path);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return file_error("cannot stat", path);
  }
  if (!S_ISREG(info.st_mode)) {
    return Error{Errc::kInvalidInput, path + " is not a regular file"};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) {
      return file_error("cannot map", path);
    }
  }
  return std::shared_ptr<const MappedFile>(
      new MappedFile(static_cast<const std::uint8_t*>(data), size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::uint8_t*>(data_), size_);
  }
}

}  // namespace mayfly::datasets
