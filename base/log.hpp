#pragma once

// The process log: one human-readable line per event. Machine-readable records (events.jsonl,
// metrics.jsonl) are written by engine/run/run_directory, not here. All functions may be called
// from any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mayfly::log {

enum class Level { kInfo, kWarning, kError };

/// Sends the log to standard error, and to `path` too unless it is empty. `who` (for example
/// "worker 3") is printed on every line. Called early in main, after any fork, and again when the
/// role of the process is known; never while other threads log.
void open(std::string_view who, const std::string& path, Level stderr_level);

/// Kept lines, each with its end of line.
struct KeptLines {
  std::uint64_t first = 0;  ///< number of the first one, counted from 0 since keep_lines()
  std::string text;         ///< empty = none
};

/// From the last open() on, lines of level kInfo and above are also kept for take_kept_lines(), at
/// most `bytes_max` bytes of them: beyond that the oldest lines are dropped, but counted. To be
/// called like open().
void keep_lines(std::size_t bytes_max);
/// Removes and returns whole lines from the oldest kept one on, at most `bytes_max` bytes together.
/// A longer line is truncated.
[[nodiscard]] KeptLines take_kept_lines(std::size_t bytes_max);

void debug(std::string_view text);
void info(std::string_view text);
void warning(std::string_view text);
void error(std::string_view text);

}  // namespace mayfly::log
