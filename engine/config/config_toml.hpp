#pragma once

// A bound that the TOML parser lacks. A key a.b.c makes a table in a table in a table, and these
// are freed one inside the other, so a key of ten thousand parts would exhaust the stack. Pure.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace mayfly::engine {

/// More than any setting's name has, which is two. The parser bounds how deep values are nested
/// (256), and each level may have a key of its own.
inline constexpr std::size_t kKeyPartsMax = 16;

/// To be asked before the text is parsed. kInvalidInput, with file and line, for a key of more than
/// kKeyPartsMax parts: before an equals sign, in the header of a table, or inside an inline table.
/// Whatever stands in strings and comments is no key.
[[nodiscard]] Result<void> check_key_parts(std::string_view toml, const std::string& file_name);

}  // namespace mayfly::engine
