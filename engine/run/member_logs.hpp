#pragma once

// logs/ in a run directory. member-ID.log has what a member on another host has logged, so that
// users find it where they started the job, also after the host is gone. One thread.

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
  static constexpr std::size_t kFilesMax = 64;  ///< the oldest goes when a member is new

  explicit MemberLogs(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  /// Appends the lines that are new; says how many are missing before them. What is too much, or
  /// cannot be written, is dropped: a log is no reason to disturb a job.
  void append(MemberId member, const LogRecord& record);

 private:
  struct Told {
    std::uint64_t next = 0;   // number of the line that comes next
    std::uint64_t bytes = 0;  // in the file
    std::string last_line;    // of a coordinator before this one; empty = none
  };
  Told& file_of(MemberId member, const std::string& path);

  const std::string run_dir_;
  std::map<MemberId, Told> told_;
};

/// A job that replaces its workers has new ids for ever, and each leaves files in the run
/// directory's logs/: of those whose names begin with `prefix` the `keep` that were written last
/// stay. One that is removed while its member lives is begun anew when there is more to write. Any
/// thread.
void keep_newest_logs(const std::string& run_dir, std::string_view prefix, std::size_t keep);

}  // namespace mayfly::engine
