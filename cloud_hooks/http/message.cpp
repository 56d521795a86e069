#include "cloud_hooks/http/message.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <time.h>
#include <algorithm>
#include <boost/url/encode.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/pct_string_view.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>
#include <boost/url/src.hpp>  // Boost.URL is used without its library
#include <boost/url/url_view.hpp>
#include <charconv>
#include <cstring>
#include <span>

#include "base/bytes.hpp"
#include "base/check.hpp"

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

std::string before_path(std::string address) {
  while (address.ends_with('/')) {
    address.pop_back();
  }
  return address;
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
    return bad_url("the host is missing or has invalid characters");
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

namespace {

const unsigned char* data_of(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

/// The time before the epoch is no time of a cloud.
std::optional<std::int64_t> seconds_of(std::tm utc, std::int64_t zone_offset) {
  const std::int64_t seconds = ::timegm(&utc) - zone_offset;
  return seconds >= 0 ? std::optional(seconds) : std::nullopt;
}

/// The seconds of "Z" or "+HH:MM".
std::optional<std::int64_t> zone_offset_of(const std::string& zone) {
  if (zone == "Z") {
    return 0;
  }
  std::tm offset{};
  constexpr std::size_t kCharacters = 6;
  if (zone.size() != kCharacters || (zone[0] != '+' && zone[0] != '-') ||
      ::strptime(zone.c_str() + 1, "%H:%M", &offset) != zone.c_str() + kCharacters) {
    return std::nullopt;
  }
  return (zone[0] == '+' ? 1 : -1) * (std::int64_t{offset.tm_hour} * 3600 + offset.tm_min * 60);
}

}  // namespace

std::string percent_encode(std::string_view text) {
  return boost::urls::encode({text.data(), text.size()}, boost::urls::unreserved_chars);
}

std::string percent_decode(std::string_view text) {
  const auto encoded = boost::urls::make_pct_string_view({text.data(), text.size()});
  return encoded ? encoded->decode() : std::string(text);
}

std::string form_encode(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string form;
  for (const auto& [name, value] : fields) {
    form += (form.empty() ? "" : "&") + percent_encode(name) + "=" + percent_encode(value);
  }
  return form;
}

std::string base64_encode(std::string_view bytes, bool url_safe) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock adds a zero byte
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), data_of(bytes),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  if (url_safe) {
    std::replace(text.begin(), text.end(), '+', '-');
    std::replace(text.begin(), text.end(), '/', '_');
    text.erase(std::min(text.find('='), text.size()));
  }
  return text;
}

std::optional<std::int64_t> parse_http_date(std::string_view text) {
  constexpr std::size_t kCharacters = 29;
  const std::string date(text);
  std::tm utc{};
  const char* const end = ::strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return date.size() == kCharacters && end == date.c_str() + kCharacters ? seconds_of(utc, 0)
                                                                         : std::nullopt;
}

std::optional<std::int64_t> parse_iso_time(std::string_view text) {
  constexpr std::size_t kCharacters = 19;  // before the fraction
  const std::string time(text);
  std::tm local{};
  if (::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &local) != time.c_str() + kCharacters) {
    return std::nullopt;
  }
  std::string zone = time.substr(kCharacters);
  if (zone.starts_with('.')) {
    const std::size_t digits = std::strspn(zone.c_str() + 1, "0123456789");
    zone.erase(0, digits == 0 ? 0 : digits + 1);
  }
  const std::optional<std::int64_t> offset = zone_offset_of(zone);
  return offset ? seconds_of(local, *offset) : std::nullopt;
}

std::string sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(data_of(bytes), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  ENSURE(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data_of(bytes), bytes.size(),
              reinterpret_cast<unsigned char*>(digest.data()), nullptr) != nullptr,
         "HMAC of memory has no way to fail");
  return digest;
}

std::string to_hex(std::string_view bytes) {
  return mayfly::to_hex(std::as_bytes(std::span(bytes)));
}

}  // namespace mayfly::cloud_hooks
