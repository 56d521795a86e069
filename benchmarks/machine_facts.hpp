#pragma once

#include <string>

namespace mayfly::bench {

/// One JSON object of kind "machine" for the head of a benchmark's lines: processor, cores, commit
/// of the source tree around the program (null if there is none), whether it has uncommitted
/// changes, version, load average, date; `more` is appended, JSON fields that begin with a comma,
/// or empty.
[[nodiscard]] std::string machine_line(const std::string& more);

}  // namespace mayfly::bench
