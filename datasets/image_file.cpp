#include "datasets/image_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::datasets {
namespace {

// Reads up to `size` bytes or to the end of the file, and returns the number of bytes read.
Result<ByteSpan> read_up_to(const std::string& path, std::uint64_t size, Bytes& buffer) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return file_error("cannot open", path);
  }
  if (buffer.size() < size) {
    buffer.resize(size);
  }
  std::uint64_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd.get(), buffer.data() + done, size - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return file_error("cannot read", path);
    }
    if (n == 0) {
      break;
    }
    done += static_cast<std::uint64_t>(n);
  }
  return ByteSpan(buffer).first(done);
}

}  // namespace

Result<ByteSpan> read_image_file(const std::string& path, std::uint64_t size, Bytes& buffer) {
  if (size > kJpegBytesMax) {
    return Error{Errc::kCorrupt, path + " has " + std::to_string(size) + " bytes, at most " +
                                     std::to_string(kJpegBytesMax) + " expected"};
  }
  // One byte more than expected, to see whether the file has grown.
  const Result<ByteSpan> read = read_up_to(path, size + 1, buffer);
  if (!read.ok()) {
    return read;
  }
  if (read.value().size() != size) {
    return Error{Errc::kCorrupt, path + " has changed while it was in use: expected " +
                                     std::to_string(size) + " bytes"};
  }
  return read;
}

Result<ByteSpan> read_image_start(const std::string& path, std::uint64_t size_max, Bytes& buffer) {
  return read_up_to(path, size_max, buffer);
}

}  // namespace mayfly::datasets
