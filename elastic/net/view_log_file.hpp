#pragma once

// The coordinator's view log on disk: ViewLogFile is the file of bytes, DurableViewLog the log of
// records in it.
//
// Guarantees: append() passes the record to the kernel before it returns, so a coordinator that is
// killed loses no record that it acted upon. fdatasync is called later on a thread of its own,
// unless a record must be durable, so a machine that loses power may lose the newest records;
// members that are alive report what they know instead (docs/failover.md). A crash in append()
// leaves a truncated last record, which the reader drops. rewrite() replaces the whole file or
// nothing.
//
// The file has one writer, which holds the lock of the run directory (base/lock_file) meanwhile.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "elastic/core/view_log.hpp"

namespace mayfly::elastic {

/// One thread at a time, except where stated.
class ViewLogFile {
 public:
  /// Upper bound on a log: a longer one was not written by Mayfly, which rewrites its log long
  /// before.
  static constexpr std::size_t kBytesMax = std::size_t{256} << 20;

  /// Reads the log; creates an empty one if there is none. kIo; kInvalidInput beyond kBytesMax.
  static Result<std::unique_ptr<ViewLogFile>> open(const std::string& path);
  /// Syncs everything that was appended.
  ~ViewLogFile();
  ViewLogFile(const ViewLogFile&) = delete;
  ViewLogFile& operator=(const ViewLogFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// The content of the file when it was opened.
  [[nodiscard]] const Bytes& found() const { return found_; }
  /// Present size of the file, by which the owner decides when to rewrite it.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// Replaces the whole content and syncs it before it returns. On failure the old content stays.
  [[nodiscard]] Result<void> rewrite(ByteSpan content);
  /// Adds one record; with `durable` it is on the disk when this returns. If the disk is full or
  /// broken, returns false and leaves the record out; that is logged once.
  bool append(ByteSpan record, bool durable = false);

 private:
  explicit ViewLogFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Result<void> reopen();
  void complain(const std::string& what);
  void sync_behind();

  const std::string path_;
  Bytes found_;
  std::size_t bytes_ = 0;
  bool error_logged_ = false;
  bool is_replaced_ = false;  // rewrite() has replaced the file, and the new one is not open yet

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::shared_ptr<UniqueFd> fd_;  // shared with a sync that runs while rewrite() replaces it
  bool dirty_ = false;
  bool ending_ = false;
  std::thread syncer_;  // the last member, because the thread uses the others
};

/// The log in such a file, of the records of elastic/core/view_log. One thread.
class DurableViewLog {
 public:
  /// Reads the log, whose only writer this is; see ViewLogFile::open for what can fail. kCorrupt,
  /// naming the file, if it is damaged or something else. A torn tail is dropped; nothing is
  /// written yet.
  static Result<std::unique_ptr<DurableViewLog>> open(const std::string& path);

  /// The contents that open() read.
  [[nodiscard]] const LogContents& contents() const { return contents_; }

  /// Continues the log after its compacted contents.
  [[nodiscard]] Result<void> go_on() { return restart(ViewLog::compact(contents_)); }
  /// The log begins anew, for another job.
  [[nodiscard]] Result<void> begin() {
    contents_ = {};
    return restart({});
  }

  /// Adds a record and, if that is due, compacts the log. If the disk is full, returns false and
  /// leaves the record out; that is logged once. Later records are kept if they fit.
  [[nodiscard]] bool append(const LogRecord& record, bool durable);

 private:
  DurableViewLog(std::unique_ptr<ViewLogFile> file, LogContents contents)
      : file_(std::move(file)), contents_(std::move(contents)) {}
  [[nodiscard]] Result<void> restart(const Bytes& content);
  void shorten();

  std::unique_ptr<ViewLogFile> file_;
  LogContents contents_;
  ViewLog log_;
};

/// Reads the log, which may have a writer, to see whether it holds a job that has not ended.
/// kNotFound if there is none.
[[nodiscard]] Result<LogContents> peek_view_log(const std::string& path);

}  // namespace mayfly::elastic
