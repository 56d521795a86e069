#include "elastic/net/view_log_file.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/try_assign.hpp"

namespace mayfly::elastic {
namespace {

std::string os_text() {
  return std::strerror(errno);
}

Result<LogContents> replay(const std::string& path, ByteSpan bytes) {
  Result<LogContents> contents = ViewLog::replay(bytes);
  if (!contents.ok()) {
    return Error{contents.error().code, path + ": " + contents.error().detail};
  }
  return contents;
}

}  // namespace

Result<std::unique_ptr<ViewLogFile>> ViewLogFile::open(const std::string& path) {
  std::unique_ptr<ViewLogFile> file(new ViewLogFile(path));
  TRY(file->reopen());
  TRY_ASSIGN(file->found_, read_file(path, kBytesMax));
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
  is_replaced_ = false;
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
  is_replaced_ = true;
  return reopen();
}

bool ViewLogFile::append(ByteSpan record, bool durable) {
  if (is_replaced_) {  // what is open has no name any more
    if (const Result<void> opened = reopen(); !opened.ok()) {
      complain(opened.error().detail);
      return false;
    }
  }
  const int fd = fd_->get();  // replaced only by this thread
  const std::size_t done = write_all(fd, record);
  if (done < record.size()) {
    complain("cannot write " + path_ + ": " + os_text());
    if (done > 0 && ::ftruncate(fd, static_cast<off_t>(bytes_)) != 0) {
      complain("cannot take back a torn record of " + path_ + ": " + os_text());
      bytes_ += done;
    }
    return false;
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
  if (!std::exchange(error_logged_, true)) {
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

Result<LogContents> peek_view_log(const std::string& path) {
  const Result<Bytes> bytes = read_file(path, ViewLogFile::kBytesMax);
  return bytes.ok() ? replay(path, bytes.value()) : Result<LogContents>(bytes.error());
}

Result<std::unique_ptr<DurableViewLog>> DurableViewLog::open(const std::string& path) {
  TRY_ASSIGN(std::unique_ptr<ViewLogFile> file, ViewLogFile::open(path));
  TRY_ASSIGN(LogContents contents, replay(path, file->found()));
  if (contents.dropped_bytes > 0) {
    log::warning(path + ": the last " + std::to_string(contents.dropped_bytes) +
                 " bytes are torn and dropped");
  }
  return std::unique_ptr<DurableViewLog>(new DurableViewLog(std::move(file), std::move(contents)));
}

Result<void> DurableViewLog::restart(const Bytes& content) {
  Result<void> done = file_->rewrite(content);
  log_ = ViewLog(file_->bytes());  // the old content, if it could not be replaced
  return done;
}

bool DurableViewLog::append(const LogRecord& record, bool durable) {
  if (!file_->append(log_.add(record), durable)) {
    log_ = ViewLog(file_->bytes());  // a record knows its place in the file
    return false;
  }
  if (log_.wants_compaction()) {
    shorten();
  }
  return true;
}

/// Uses the content of the file rather than a copy in memory: a record that could not be written
/// must not appear.
void DurableViewLog::shorten() {
  const Result<LogContents> contents = peek_view_log(file_->path());
  if (!contents.ok()) {
    log::warning("the view log is not shortened: " + contents.error().detail);
    return;
  }
  if (Result<void> done = restart(ViewLog::compact(contents.value())); !done.ok()) {
    log::warning("the view log is not shortened: " + done.error().detail);
  }
}

}  // namespace mayfly::elastic
