#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::engine {

/// A file that grows by whole records (a line, or a framed binary record), one write(2) each, so
/// that a killed process can lose only the record that it was writing. One thread at a time.
class LineFile {
 public:
  enum class Content { kLines, kBinary };

  /// Opens for appending, creating it if missing. With kLines a last line that a crash left torn is
  /// cut off first.
  static Result<std::unique_ptr<LineFile>> open(const std::string& path, Content content);

  /// Appends the record (with kLines a newline is added). kIo if not all of it could be written; a
  /// partly written record is cut off again. While that is impossible, no record is appended: the
  /// next one would continue it, and a line that is no record makes the whole file corrupt.
  [[nodiscard]] Result<void> append(std::string_view record);

 private:
  LineFile(std::string path, UniqueFd fd, Content content)
      : path_(std::move(path)), fd_(std::move(fd)), content_(content) {}

  [[nodiscard]] Result<void> cut_torn_line();
  [[nodiscard]] Result<void> cut_torn_record();

  std::string path_;
  UniqueFd fd_;
  Content content_;
  std::optional<off_t> torn_at_;  // the begin of a record that was partly written
};

}  // namespace mayfly::engine
