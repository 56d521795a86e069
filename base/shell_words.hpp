#pragma once

// Quoting of words for a shell: for commands that are printed for the user, or run by the startup
// script of a machine. Any thread.

#include <string>
#include <vector>

namespace mayfly {

/// The text in single quotes.
[[nodiscard]] std::string shell_quoted(const std::string& text);

/// The words as one line that a shell splits into the same words; quoted only where needed.
[[nodiscard]] std::string shell_line(const std::vector<std::string>& words);

}  // namespace mayfly
