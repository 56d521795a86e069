#pragma once

// The format of view.log, which contains all that a coordinator needs to continue a job after it
// was killed. Pure: this file makes and reads bytes; elastic/net/view_log_file reads and writes the
// file. One thread.
//
// A log is a header of kViewLogHeaderBytes, then records: length of the payload (u32), checksum
// (u64, of offset, type and payload), type (u8), payload. Records are only added at the end, so a
// crash can damage only the tail, which replay() drops. Damage that is followed by intact records
// has another cause and may hide the job itself, so replay() refuses such a log.
//
// Only the last view matters, so a log can be replaced at any time by compact() of what replay()
// finds in it. That keeps it short: compact a log when it is opened, and while it is written
// whenever wants_compaction() is true.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

inline constexpr std::size_t kViewLogHeaderBytes = 16;

/// How a job ended.
enum class Outcome : std::uint8_t { kDone = 0, kStopped = 1, kFailed = 2, kTooFewWorkers = 3 };

namespace log_record {
/// The first record of every log. A standby that has not led adds another one if members of another
/// job connect to it after those of this job have left.
struct JobStarted {
  std::uint64_t job = 0;           ///< random id
  std::uint32_t microbatches = 0;  ///< per step
  std::vector<std::pair<std::string, std::string>> fingerprint;
  friend bool operator==(const JobStarted&, const JobStarted&) = default;
};
struct IncarnationStarted {
  Incarnation incarnation{};
  friend bool operator==(const IncarnationStarted&, const IncarnationStarted&) = default;
};
struct ViewPublished {
  View view;
  friend bool operator==(const ViewPublished&, const ViewPublished&) = default;
};
/// An operator paused the job (true) or resumed it.
struct Paused {
  bool is_paused = false;
  friend bool operator==(const Paused&, const Paused&) = default;
};
struct JobEnded {
  Outcome outcome = Outcome::kDone;
  std::string detail;
  friend bool operator==(const JobEnded&, const JobEnded&) = default;
};
}  // namespace log_record

using LogRecord = std::variant<log_record::JobStarted, log_record::IncarnationStarted,
                               log_record::ViewPublished, log_record::Paused, log_record::JobEnded>;

/// The contents of a log.
struct LogContents {
  std::uint64_t job = 0;  ///< 0: the log has no complete record; the job has not begun
  std::uint32_t microbatches = 0;
  std::vector<std::pair<std::string, std::string>> fingerprint;
  Incarnation incarnation{};  ///< the last incarnation that began
  std::optional<View> view;   ///< the last view that was published
  bool is_paused = false;
  std::optional<log_record::JobEnded> ended;
  std::size_t good_bytes = 0;     ///< the file must be truncated to this before more is added
  std::size_t dropped_bytes = 0;  ///< size of a truncated or damaged tail after good_bytes
  friend bool operator==(const LogContents&, const LogContents&) = default;
};

class ViewLog {
 public:
  /// Continues a file of this length: 0, or the good_bytes of what replay() read.
  explicit ViewLog(std::size_t bytes = 0) { compacted(bytes); }

  /// The bytes to add to the file for this record; the header too if the log is empty.
  [[nodiscard]] Bytes add(const LogRecord& record);
  /// The length of the file after the last add().
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// True if the log is long and mostly contains views that are over.
  [[nodiscard]] bool wants_compaction() const;
  /// The file was replaced by a compact() one of this length. wants_compaction() is true again when
  /// the log is long and has doubled.
  void compacted(std::size_t bytes);

  /// Reads a log. A damaged or incomplete tail is dropped and counted. kCorrupt, with the byte, if
  /// an intact record follows a damaged one or makes no sense; or if the bytes are not a log of
  /// this version.
  [[nodiscard]] static Result<LogContents> replay(ByteSpan file);
  /// The shortest log with the same contents.
  [[nodiscard]] static Bytes compact(const LogContents& contents);

 private:
  std::size_t bytes_ = 0;
  std::size_t compact_at_ = 0;
};

}  // namespace mayfly::elastic
