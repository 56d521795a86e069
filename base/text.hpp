#pragma once

// Functions on text: its encoding, quoting for a shell, suggestions, and the messages of libraries.
// Any thread.

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace mayfly {

/// Whether the text is UTF-8 as in RFC 3629, without overlong forms and surrogates. TOML and JSON
/// may only contain such text, but names of files may be any bytes.
[[nodiscard]] bool is_utf8(std::string_view text);

/// The text without what a terminal or JSON does not take: control characters other than newlines
/// and tabs, and bytes that are no UTF-8, are question marks.
[[nodiscard]] std::string printable(std::string text);
/// The same in one line: newlines and tabs are question marks, too.
[[nodiscard]] std::string printable_line(std::string text);

/// The last line that is not blank, without blanks around it; empty if there is none.
[[nodiscard]] std::string last_line_of(std::string_view text);

/// The shortest text that reads back to the same number; "inf", "-inf" and "nan" if it is not
/// finite.
[[nodiscard]] std::string shortest_text(double number);
/// The text in single quotes, for a shell.
[[nodiscard]] std::string shell_quoted(const std::string& text);
/// The words as one line that a shell splits into the same words; quoted only where needed.
[[nodiscard]] std::string shell_line(const std::vector<std::string>& words);

/// The least number of insertions, deletions, replacements and swaps of neighbouring characters
/// that turn `a` into `b` (optimal string alignment); for suggestions such as "did you mean
/// --workers?".
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The message of a library's exception without the source location that Gloo puts before it and
/// Boost behind it.
[[nodiscard]] std::string reason_of(const std::exception& failure);

}  // namespace mayfly
