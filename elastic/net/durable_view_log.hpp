#pragma once

// The coordinator's view log on disk: elastic/core says what the bytes mean (view_log), a file
// keeps them (view_log_file). One thread.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "elastic/core/view_log.hpp"
#include "elastic/net/view_log_file.hpp"

namespace mayfly::elastic {

class DurableViewLog {
 public:
  /// Reads the log, whose only writer this is; see ViewLogFile::open for what can fail. kCorrupt,
  /// naming the file, if it is damaged or something else. A torn tail is dropped; nothing is
  /// written yet.
  static Result<std::unique_ptr<DurableViewLog>> open(const std::string& path);

  /// What was found.
  [[nodiscard]] const LogContents& contents() const { return contents_; }

  /// The log goes on behind what was found, shortened to what still matters.
  [[nodiscard]] Result<void> go_on() { return restart(ViewLog::compact(contents_)); }
  /// The log begins anew, for another job.
  [[nodiscard]] Result<void> begin() {
    contents_ = {};
    return restart({});
  }

  /// Adds a record and, if that is due, shortens the log. A full disk is said once and the record
  /// left out; then false. Those that come later are kept if they fit.
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
