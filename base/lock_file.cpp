#include "base/lock_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/system_error.hpp"

namespace mayfly {
namespace {

namespace fs = std::filesystem;

constexpr auto kRetryDelay = std::chrono::milliseconds(10);
constexpr int kOpenAttemptsMax = 100;  // other processes may remove file and folder repeatedly

std::string holder_of(int fd) {
  char text[32] = {};
  const ssize_t size = ::pread(fd, text, sizeof text - 1, 0);
  return size > 0 ? "process " + std::string(text) : std::string("another process");
}

}  // namespace

Result<LockFile> LockFile::take(const std::string& path, Duration patience) {
  LockFile lock(path);
  const Instant deadline = monotonic_now() + patience;
  while (true) {
    if (Result<void> opened = lock.open(); !opened.ok()) {
      std::move(lock).discard();
      return std::move(opened).error();
    }
    if (::flock(lock.fd_.get(), LOCK_EX | LOCK_NB) == 0) {
      if (lock.is_in_place()) {
        lock.sign();
        return lock;
      }
      continue;  // the process that held it has removed the file
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {
      const Error failure = system_error("cannot lock " + path, errno);
      std::move(lock).discard();
      return failure;
    }
    if (monotonic_now() > deadline) {
      return Error{Errc::kRefused, holder_of(lock.fd_.get()) + " holds " + path};
    }
    std::this_thread::sleep_for(kRetryDelay);
  }
}

/// O_EXCL decides which process creates the file and which ones find it, so only one removes it.
Result<void> LockFile::open() {
  for (int attempt = 0; attempt < kOpenAttemptsMax; ++attempt) {
    fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    made_file_ = fd_.valid();
    if (!made_file_ && errno == EEXIST) {
      fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    }
    if (fd_.valid()) {
      return {};
    }
    if (errno != ENOENT) {
      break;
    }
    TRY(make_folders());
    errno = ENOENT;
  }
  return system_error("cannot open " + path_, errno);
}

Result<void> LockFile::make_folders() {
  std::vector<fs::path> missing;
  std::error_code failure;
  for (fs::path folder = fs::path(path_).parent_path();
       !folder.empty() && !fs::exists(folder, failure); folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  std::reverse(missing.begin(), missing.end());
  for (const fs::path& folder : missing) {
    const bool is_ours = fs::create_directory(folder, failure);
    const std::string name = folder.string();
    if (failure && failure != std::errc::no_such_file_or_directory) {
      return Error{Errc::kIo, "cannot create folder " + name + ": " + failure.message()};
    }
    const bool is_known =
        std::find(made_folders_.begin(), made_folders_.end(), name) != made_folders_.end();
    if (is_ours && !is_known) {
      made_folders_.push_back(name);
    }
  }
  return {};
}

bool LockFile::is_in_place() const {
  struct stat held {};
  struct stat named {};
  return ::fstat(fd_.get(), &held) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

void LockFile::sign() const {
  const std::string self = std::to_string(::getpid());
  // For messages only: the lock itself does not depend on the content.
  [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), 0);
  [[maybe_unused]] const ssize_t said = ::pwrite(fd_.get(), self.data(), self.size(), 0);
}

void LockFile::discard() && {
  if (made_file_ && is_in_place()) {  // otherwise it belongs to another process now
    ::unlink(path_.c_str());          // before the release, so that no process locks a removed file
  }
  std::for_each(made_folders_.rbegin(), made_folders_.rend(),
                [](const std::string& folder) { ::rmdir(folder.c_str()); });
  fd_ = UniqueFd();
}

}  // namespace mayfly
