#pragma once

// A bound that the TOML parser lacks. A key a.b.c makes a table in a table in a table, and these
// are freed one inside the other, so a key of ten thousand parts would exhaust the stack. Pure.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace mayfly::engine {

/// More than the two parts that a setting's name has at most. The parser bounds the depth of nested
/// values (256), and each level may have a key of its own.
inline constexpr std::size_t kKeyPartsMax = 16;

/// To be called before the text is parsed. kInvalidInput, with file and line, for a key of more
/// than kKeyPartsMax parts: before an equals sign, in the header of a table, or inside an inline
/// table. The contents of strings and comments are no keys.
[[nodiscard]] Result<void> check_key_parts(std::string_view toml, const std::string& file_name);

}  // namespace mayfly::engine
