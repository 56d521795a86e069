#pragma once

// Limits that the kernel applies to the processes of a container or job. Any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mayfly {

/// The text of a file under /proc or /sys, whose size is unknown before it is read; empty if it
/// cannot be read.
[[nodiscard]] std::string content_of_kernel_file(const std::string& path);

/// The number at the beginning of the text, after blanks; nothing if there is none, as in "max".
[[nodiscard]] std::optional<std::uint64_t> leading_number(std::string_view text);

/// Folders of this process's control groups, from its own to the outermost visible one: those of
/// version 2, and those of a controller of version 1, such as "memory".
[[nodiscard]] std::vector<std::string> control_groups();
[[nodiscard]] std::vector<std::string> control_groups(std::string_view controller);

}  // namespace mayfly
