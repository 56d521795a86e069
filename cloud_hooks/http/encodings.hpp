#pragma once

// The encodings, dates and hashes that several clouds share. Pure. Any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mayfly::cloud_hooks {

/// RFC 3986: everything but letters, digits and -._~ becomes %XX.
[[nodiscard]] std::string percent_encode(std::string_view text);
/// The reverse; a text with a '%' that begins no %XX stays as it is.
[[nodiscard]] std::string percent_decode(std::string_view text);

/// name=value&... with both sides percent-encoded, in the order given.
[[nodiscard]] std::string form_encode(
    const std::vector<std::pair<std::string, std::string>>& fields);

/// Base64 with padding (RFC 4648); `url_safe`: the URL alphabet without padding.
[[nodiscard]] std::string base64_encode(std::string_view bytes, bool url_safe = false);

/// Seconds since 1970 of a Date header ("Sun, 06 Nov 1994 08:49:37 GMT"); nothing if it is not one.
[[nodiscard]] std::optional<std::int64_t> parse_http_date(std::string_view text);

/// Seconds since 1970 of "2015-08-30T12:36:00[.123]Z" or with a zone offset of the form "+01:00";
/// nothing if it is anything else.
[[nodiscard]] std::optional<std::int64_t> parse_iso_time(std::string_view text);

/// SHA-256: 32 bytes.
[[nodiscard]] std::string sha256(std::string_view bytes);
/// 32 bytes.
[[nodiscard]] std::string hmac_sha256(std::string_view key, std::string_view bytes);
/// Two lower-case digits per byte.
[[nodiscard]] std::string to_hex(std::string_view bytes);

}  // namespace mayfly::cloud_hooks
