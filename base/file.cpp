#include "base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "base/system_error.hpp"
#include "base/system_random.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {
namespace {

/// A name that no other writer of this file uses: neither another thread, nor a process with the
/// same number on another host or in another container that shares the folder.
std::string temporary_beside(const std::string& path) {
  static const std::uint64_t own = system_random();
  static std::atomic<std::uint64_t> count = 0;  // a forked process has the number of its parent
  return path + ".tmp." + std::to_string(::getpid()) + '-' + std::to_string(own) + '-' +
         std::to_string(count++);
}

/// Errors name `path`, which the caller knows.
Result<void> write_and_sync(const std::string& temporary, const std::string& path,
                            ByteSpan content) {
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return file_error("cannot create", path);
  }
  if (write_all(fd.get(), content) < content.size()) {
    return file_error("cannot write", path);
  }
  if (::fsync(fd.get()) != 0) {
    return file_error("cannot sync", path);
  }
  return {};
}

void sync_parent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const UniqueFd fd(
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) {
    ::fsync(fd.get());
  }
}

}  // namespace

std::size_t write_all(int fd, ByteSpan content) {
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::write(fd, content.data() + done, content.size() - done);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0) {  // write() failed without setting errno
      errno = EIO;
      break;
    } else if (errno != EINTR) {
      break;
    }
  }
  return done;
}

Error file_error(const std::string& what, const std::string& path) {
  const bool is_no_path = errno == ELOOP || errno == ENOTDIR || errno == ENAMETOOLONG;
  const Errc code = errno == ENOENT ? Errc::kNotFound
                    : is_no_path    ? Errc::kInvalidInput
                                    : Errc::kIo;
  return system_error(what + " " + path, errno, code);
}

Result<ReadableFile> open_to_read(const std::string& path) {
  // Non-blocking, because opening a named pipe without a writer would block before it is refused.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
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
  return ReadableFile{std::move(fd), static_cast<std::size_t>(info.st_size)};
}

Result<Bytes> read_file(const std::string& path, std::size_t size_max) {
  TRY_ASSIGN(const ReadableFile file, open_to_read(path));
  if (file.size > size_max) {
    return Error{Errc::kInvalidInput, path + " has " + std::to_string(file.size) +
                                          " bytes, at most " + std::to_string(size_max) +
                                          " expected"};
  }
  Bytes content(file.size);
  std::size_t done = 0;
  while (done < file.size) {
    const ssize_t n = ::read(file.fd.get(), content.data() + done, file.size - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return file_error("cannot read", path);
    }
    if (n == 0) {
      return Error{Errc::kCorrupt, path + " became shorter while it was read"};
    }
    done += static_cast<std::size_t>(n);
  }
  return content;
}

Result<std::string> read_text_file(const std::string& path, std::size_t size_max) {
  TRY_ASSIGN(Bytes content, read_file(path, size_max));
  return std::string(reinterpret_cast<const char*>(content.data()), content.size());
}

Result<void> write_file_atomic(const std::string& path, ByteSpan content) {
  const std::string temporary = temporary_beside(path);
  Result<void> written = write_and_sync(temporary, path, content);
  if (written.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    written = file_error("cannot rename to", path);
  }
  if (!written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  sync_parent(path);
  return {};
}

Result<void> write_file_atomic(const std::string& path, std::string_view content) {
  return write_file_atomic(path, std::as_bytes(std::span(content)));
}

std::string find_beside_program(const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate :
       std::array{folder, folder / "../lib/mayfly", folder / "../lib"}) {
    if (fs::is_regular_file(candidate / file, error)) {
      return candidate / file;
    }
  }
  return {};
}

std::vector<std::string> names_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> make_directories(const std::string& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure) {
    return Error{Errc::kIo, "cannot create folder " + path + ": " + failure.message()};
  }
  return {};
}

std::string own_program() {
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure);
  return failure ? "mayfly" : program.string();
}

}  // namespace mayfly
