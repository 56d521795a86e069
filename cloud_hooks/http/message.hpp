#pragma once

// HTTP requests and answers as values, and the encodings, dates and hashes that several clouds
// share. Pure: no socket, no clock. Any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace mayfly::cloud_hooks {

/// The address of a request: scheme://host[:port]/target.
struct Url {
  bool tls = true;
  std::string host;  ///< lower case; a literal IPv6 address without brackets
  std::uint16_t port = 443;
  std::string target = "/";  ///< encoded path and query, beginning with '/'

  /// The value of a Host header, with the port only if it is not the scheme's default.
  [[nodiscard]] std::string host_header() const;
  /// True for TLS, and for this host itself: no third party can read the traffic.
  [[nodiscard]] bool safe_for_secrets() const;
  /// The address as a text, for messages and proxies.
  [[nodiscard]] std::string text() const;

  friend bool operator==(const Url&, const Url&) = default;
};

/// kInvalidInput for anything but http:// or https:// with a host, for user names in it, and for
/// spaces, control characters or a fragment.
[[nodiscard]] Result<Url> parse_url(std::string_view text);
/// The address of a server, as a user gives it, before a path: without slashes at its end.
[[nodiscard]] std::string before_path(std::string address);

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method = "GET";
  Url url;
  HttpHeaders headers;  ///< without Host and Content-Length: the client adds those
  std::string body;
};

struct HttpResponse {
  int status = 0;
  HttpHeaders headers;
  std::string body;

  /// The first header of that name, in any case; nothing if there is none.
  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const;
  /// The server's time, in seconds since 1970, if the answer has a Date header.
  [[nodiscard]] std::optional<std::int64_t> date() const;
};

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
