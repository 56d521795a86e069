#pragma once

// A JSON object that ends with a hash of itself, in a format without optional bytes, so that any
// modified byte is detected. Pure; any thread.

#include <string>
#include <string_view>

namespace mayfly {

/// `object`: the text of a JSON object with at least one field. Returns it with a last field
/// `name`, the digest of everything before it, and an end of line.
[[nodiscard]] std::string with_own_hash(std::string object, std::string_view name);

/// True if the text ends with such a field and is unchanged.
[[nodiscard]] bool fits_own_hash(std::string_view text, std::string_view name);

}  // namespace mayfly
