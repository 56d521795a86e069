#pragma once

#include <string_view>

namespace mayfly {

/// Whether the text is UTF-8 as in RFC 3629, without overlong forms and surrogates. TOML and JSON
/// may only contain such text, but names of files may be any bytes.
[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace mayfly
