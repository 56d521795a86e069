#pragma once

// Reads the files of a run directory as they grow, into a fold (core/run_fold.hpp). One thread at
// a time.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "observe/core/run_fold.hpp"

namespace mayfly::observe {

/// A file of lines that grows. The bytes behind its last end of line are read once the line is
/// complete.
struct GrowingFile {
  std::string path;
  std::uint64_t offset = 0;  ///< bytes whose lines were read
  std::uint64_t file = 0;    ///< its inode, to notice a new file with the same name
};

/// A file that is written as a whole, and the function of the fold that reads its text.
struct SmallFile {
  const char* name;
  void (RunFold::*use)(std::string_view text);
  std::string seen = {};  ///< size and time of the file that was read
};

class RunFollower {
 public:
  /// Reads the records that exist so far. kNotFound, or kInvalidInput if the folder is no run
  /// directory; the text contains `path`. If lines are damaged, all others are read.
  [[nodiscard]] static Result<std::unique_ptr<RunFollower>> open(const std::string& path);

  /// Reads the records that were added since. True if the fold has changed. If the files were
  /// replaced, a new fold is created, which take_begun_anew() reports.
  bool poll();
  [[nodiscard]] bool take_begun_anew();
  /// True if the settings or the summary were read since the last call.
  [[nodiscard]] bool take_read_settings();

  [[nodiscard]] RunFold& fold() { return *fold_; }
  /// The folder's own name; see name_apart().
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t event_bytes() const { return events_.offset; }
  [[nodiscard]] std::uint64_t metric_bytes() const { return metrics_.offset; }
  [[nodiscard]] std::uint64_t member_bytes() const { return members_.offset; }
  [[nodiscard]] bool has_summary() const { return !summary_.seen.empty(); }

 private:
  friend Result<void> name_apart(const std::vector<std::unique_ptr<RunFollower>>& runs);

  explicit RunFollower(const std::string& path);
  bool begin_anew_if_replaced();
  bool read_small(SmallFile& file);

  std::string path_;
  std::string whole_path_;  // without links
  std::string name_;
  std::unique_ptr<RunFold> fold_;
  GrowingFile events_;
  GrowingFile metrics_;
  GrowingFile members_;
  SmallFile config_{"/config.toml", &RunFold::config};
  SmallFile facts_{"/facts.json", &RunFold::facts};
  SmallFile summary_{"/summary.json", &RunFold::summary};
  bool anew_ = false;
  bool settings_read_ = false;
};

/// Gives runs that are shown together different names: if folders have the same name, as many names
/// of the folders above are added as necessary ("a/run", "b/run"). kInvalidInput if a folder occurs
/// twice.
[[nodiscard]] Result<void> name_apart(const std::vector<std::unique_ptr<RunFollower>>& runs);

}  // namespace mayfly::observe
