#pragma once

// What workers tell the coordinator's process for the run directory. elastic carries these as
// opaque reports. The member with rank 0 sends them; after a change of view the new rank 0 repeats
// the last few, and the receiver drops what it already has, so a death loses none.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace mayfly::engine {

struct StepRecord {
  static constexpr std::int32_t kNoScale = -1;

  std::uint64_t step = 0;
  std::uint64_t view = 0;
  std::uint32_t members = 0;
  std::uint32_t samples = 0;
  std::uint32_t correct = 0;
  double loss = 0;
  double learning_rate = 0;
  double seconds = 0;       ///< since this member's commit before; 0 = its first
  double wait_ms = 0;       ///< of it, waiting for data or preparing it; mean of compute threads
  std::string sample_hash;  ///< hex
  std::string digest;       ///< hex; empty if not computed at this step
  std::int32_t loss_scale = kNoScale;  ///< its exponent in this step; kNoScale = not in fp16
  bool skipped = false;                ///< a gradient was not finite, so there was no update
  std::uint32_t attempts = 1;  ///< more than one: gradients were too large for their exponents
};
struct EvaluationRecord {
  std::uint64_t step = 0;
  std::uint64_t samples = 0;
  std::uint64_t correct = 0;
  double loss = 0;  ///< mean cross entropy
};
struct CheckpointRecord {
  std::uint64_t step = 0;
  bool ok = false;
  std::string text;  ///< folder, or why it could not be written
};
/// The job cannot go on: the loss is not finite, members disagree, ...
struct FatalRecord {
  std::string reason;
};
/// Resources of one worker, at the end of its part.
struct WorkerRecord {
  double loader_wait_ms = 0;
  std::uint64_t steps = 0;
};
/// A fact for events.jsonl that only the worker knows.
struct NoteRecord {
  std::string kind;
  std::string detail;
};

/// The state was seen whole after this step, without an update in between (parameter servers).
struct StateRecord {
  std::uint64_t step = 0;
  std::string digest;  ///< hex
};

/// Training diverged; the steps after `step` are undone and done again (parameter servers).
struct FallBackRecord {
  std::uint64_t at = 0;  ///< slices that had been done; tells a repeated record from another
  std::uint64_t step = 0;
  std::string reason;
};

/// Lines of a member's log, each with its end of line; see log::take_kept_lines().
struct LogRecord {
  static constexpr std::size_t kBytesMax = 4096;  ///< of the text

  std::uint64_t first = 0;  ///< number of the first line; tells repeated lines from new ones
  std::string lines;
};

using Record = std::variant<StepRecord, EvaluationRecord, CheckpointRecord, FatalRecord,
                            WorkerRecord, NoteRecord, StateRecord, FallBackRecord, LogRecord>;

/// Tells a failure that comes again from one of another cause: what follows the last colon of its
/// text, as of errors of the operating system. One thread.
class SaidFailure {
 public:
  [[nodiscard]] bool is_news(const std::string& text) {
    const std::string cause = text.substr(text.rfind(':') + 1);
    return std::exchange(cause_, cause) != cause;
  }
  /// It has worked again.
  void is_over() { cause_.reset(); }

 private:
  std::optional<std::string> cause_;
};

[[nodiscard]] Bytes encode_record(const Record& record);
[[nodiscard]] Result<Record> decode_record(ByteSpan bytes);

}  // namespace mayfly::engine
