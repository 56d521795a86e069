#pragma once

// Words for a shell: commands that are shown to people or run by a machine that starts.

#include <string>
#include <vector>

namespace mayfly {

/// The text in single quotes. Any thread.
[[nodiscard]] std::string shell_quoted(const std::string& text);

/// The words as one line that a shell takes apart again; quotes only where they are needed.
[[nodiscard]] std::string shell_line(const std::vector<std::string>& words);

}  // namespace mayfly
