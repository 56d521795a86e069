#pragma once

// logs/ in a run directory. member-ID.log contains the log of a member on another host, so that
// users find it where they started the job, even when that host no longer exists. One thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/ids.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {

class MemberLogs {
 public:
  static constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 20;  ///< of one member's file
  static constexpr std::size_t kFilesMax = 64;  ///< a new member's file replaces the oldest

  explicit MemberLogs(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  /// Appends the new lines, after a note on how many lines before them are missing. Drops lines
  /// over the limit and lines that cannot be written: a log must not disturb a job.
  void append(MemberId member, const LogRecord& record);

 private:
  struct Written {
    std::uint64_t next = 0;   // number of the next line
    std::uint64_t bytes = 0;  // in the file
    std::string last_line;    // that an earlier coordinator wrote; empty = none
  };
  Written& file_of(MemberId member, const std::string& path);

  const std::string run_dir_;
  std::map<MemberId, Written> written_;
};

/// Removes files in the run directory's logs/ whose names begin with `prefix`, except the `keep`
/// that were written last: a job that replaces its workers uses new ids without end, and each id
/// has files of its own. If the file of a living member is removed, its next lines begin a new one.
/// Any thread.
void keep_newest_logs(const std::string& run_dir, std::string_view prefix, std::size_t keep);

}  // namespace mayfly::engine
