#pragma once

// SHA-256 and HMAC by OpenSSL, on strings of bytes. Any thread.

#include <string>
#include <string_view>

namespace mayfly::cloud_hooks {

/// 32 bytes.
[[nodiscard]] std::string sha256(std::string_view bytes);
/// 32 bytes.
[[nodiscard]] std::string hmac_sha256(std::string_view key, std::string_view bytes);
/// Two lower-case digits per byte.
[[nodiscard]] std::string to_hex(std::string_view bytes);

}  // namespace mayfly::cloud_hooks
