#pragma once

#include <string_view>

namespace mayfly {

/// Whether TOML and JSON may contain this text: UTF-8 as in RFC 3629, without overlong forms and
/// surrogates. Names of files may be anything else.
[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace mayfly
