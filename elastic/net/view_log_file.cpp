#include "elastic/net/view_log_file.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.hpp"
#include "base/log.hpp"

namespace mayfly::elastic {
namespace {

std::string os_text() {
  return std::strerror(errno);
}

}  // namespace

Result<std::unique_ptr<ViewLogFile>> ViewLogFile::open(const std::string& path) {
  std::unique_ptr<ViewLogFile> file(new ViewLogFile(path));
  TRY(file->reopen());
  Result<Bytes> found = read_file(path, kBytesMax);
  if (!found.ok()) {
    return std::move(found).error();
  }
  file->found_ = std::move(found).value();
  file->bytes_ = file->found_.size();
  file->syncer_ = std::thread([raw = file.get()] { raw->sync_behind(); });
  return file;
}

Result<void> ViewLogFile::reopen() {
  UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return Error{Errc::kIo, "cannot open " + path_ + ": " + os_text()};
  }
  const std::lock_guard lock(mutex_);
  fd_ = std::make_shared<UniqueFd>(std::move(fd));
  return {};
}

ViewLogFile::~ViewLogFile() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (syncer_.joinable()) {
    syncer_.join();
  }
}

Result<void> ViewLogFile::rewrite(ByteSpan content) {
  TRY(write_file_atomic(path_, content));
  bytes_ = content.size();
  return reopen();
}

bool ViewLogFile::append(ByteSpan record, bool durable) {
  const int fd = fd_->get();  // replaced only by this thread
  std::size_t done = 0;
  while (done < record.size()) {
    const ssize_t n = ::write(fd, record.data() + done, record.size() - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      complain("cannot write " + path_ + ": " + os_text());
      if (done > 0 && ::ftruncate(fd, static_cast<off_t>(bytes_)) != 0) {
        complain("cannot take back a torn record of " + path_ + ": " + os_text());
        bytes_ += done;
      }
      return false;
    }
    done += static_cast<std::size_t>(n);
  }
  bytes_ += done;
  if (durable) {
    if (::fdatasync(fd) != 0) {
      complain("cannot sync " + path_ + ": " + os_text());
      return false;
    }
    return true;
  }
  {
    const std::lock_guard lock(mutex_);
    dirty_ = true;
  }
  changed_.notify_one();
  return true;
}

void ViewLogFile::complain(const std::string& what) {
  if (!std::exchange(complained_, true)) {
    log::error(what + "; a coordinator that is restarted now would have to ask the members");
  }
}

void ViewLogFile::sync_behind() {
  ::pthread_setname_np(::pthread_self(), "view log");
  bool complained = false;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return dirty_ || ending_; });
    if (!std::exchange(dirty_, false)) {
      return;
    }
    const std::shared_ptr<UniqueFd> fd = fd_;
    lock.unlock();
    if (::fdatasync(fd->get()) != 0 && !std::exchange(complained, true)) {
      log::error("cannot sync " + path_ + ": " + os_text());
    }
    lock.lock();
  }
}

}  // namespace mayfly::elastic
