#pragma once

// The process log: one line per event, for people. Machine-readable records (events.jsonl,
// metrics.jsonl) are written by engine/run/run_directory, not here. All functions may be called
// from any thread.

#include <string>
#include <string_view>

namespace mayfly::log {

enum class Level { kDebug, kInfo, kWarning, kError };

/// Sends the log to standard error, and to `path` too unless it is empty. `who` (for example
/// "worker 3") is printed on every line. Called early in main, after any fork, and again when the
/// process knows what it is; never while other threads log.
void open(std::string_view who, const std::string& path, Level stderr_level);

void debug(std::string_view text);
void info(std::string_view text);
void warning(std::string_view text);
void error(std::string_view text);

}  // namespace mayfly::log
