#pragma once

// HTTP requests and answers as values. Pure: no socket, no clock. Any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/http/encodings.hpp"

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

}  // namespace mayfly::cloud_hooks
