#include "cloud_hooks/http/message.hpp"

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>
#include <boost/url/url_view.hpp>
#include <charconv>

namespace mayfly::cloud_hooks {
namespace {

namespace urls = boost::urls;

// <cctype> depends on the locale; the wire does not.
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

Error bad_url(std::string_view why) {
  // Never the text itself: a URL that cannot be read may hold a password.
  return Error{Errc::kInvalidInput, "not a usable URL: " + std::string(why)};
}

}  // namespace

std::string Url::host_header() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? 443 : 80) ? name : name + ":" + std::to_string(port);
}

bool Url::safe_for_secrets() const {
  return tls || host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string Url::text() const {
  return (tls ? "https://" : "http://") + host_header() + target;
}

Result<Url> parse_url(std::string_view text) {
  const auto parsed = urls::parse_uri({text.data(), text.size()});
  if (!parsed) {
    return bad_url("it is not of the form http://host:port/path with the characters of RFC 3986");
  }
  const urls::url_view& uri = *parsed;
  Url url;
  url.tls = uri.scheme_id() == urls::scheme::https;
  if (!url.tls && uri.scheme_id() != urls::scheme::http) {
    return bad_url("it must begin with http:// or https://");
  }
  if (uri.has_userinfo() || uri.has_fragment()) {
    return bad_url("user names and fragments have no place");
  }
  url.host = std::string(uri.encoded_host_address());
  std::transform(url.host.begin(), url.host.end(), url.host.begin(), lower);
  if (url.host.empty() ||
      (uri.host_type() == urls::host_type::name &&
       !std::all_of(url.host.begin(), url.host.end(), urls::unreserved_chars))) {
    return bad_url("the host is missing or has characters that hosts do not have");
  }
  if (!url.tls) {
    url.port = 80;
  }
  // Boost.URL 1.81 does not notice every number above 65535.
  const auto port = uri.port();
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
  if (uri.has_port() &&
      (error != std::errc() || end != port.data() + port.size() || url.port == 0)) {
    return bad_url("the port is not a number from 1 to 65535");
  }
  url.target = std::string(uri.encoded_target());
  if (url.target.empty() || url.target.front() == '?') {
    url.target.insert(0, "/");
  }
  if (url.target.front() != '/') {  // Boost.URL 1.81 takes what follows a port for a path
    return bad_url("the port or the host is followed by other characters");
  }
  return url;
}

std::optional<std::string_view> HttpResponse::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (std::equal(key.begin(), key.end(), name.begin(), name.end(),
                   [](char a, char b) { return lower(a) == lower(b); })) {
      return value;
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> HttpResponse::date() const {
  const std::optional<std::string_view> text = header("Date");
  return text ? parse_http_date(*text) : std::nullopt;
}

}  // namespace mayfly::cloud_hooks
