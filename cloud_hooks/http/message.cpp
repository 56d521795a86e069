#include "cloud_hooks/http/message.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace mayfly::cloud_hooks {
namespace {

// <cctype> depends on the locale; the wire does not.
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_unreserved(char c) {
  return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || c == '-' || c == '.' || c == '_' ||
         c == '~';
}

bool is_host_character(char c, bool in_brackets) {
  return is_unreserved(c) || (in_brackets && c == ':');
}

Error bad_url(std::string_view why) {
  // Never the text itself: a URL that cannot be read may hold a password.
  return Error{Errc::kInvalidInput, "not a usable URL: " + std::string(why)};
}

/// A decimal number of exactly `digits` digits at `at`; moves `at` behind it.
std::optional<int> digits_at(std::string_view text, std::size_t& at, std::size_t digits) {
  if (at + digits > text.size()) {
    return std::nullopt;
  }
  int value = 0;
  for (std::size_t i = at; i < at + digits; ++i) {
    if (!is_digit(text[i])) {
      return std::nullopt;
    }
    value = value * 10 + (text[i] - '0');
  }
  at += digits;
  return value;
}

bool skip(std::string_view text, std::size_t& at, std::string_view what) {
  if (text.substr(at, what.size()) != what) {
    return false;
  }
  at += what.size();
  return true;
}

/// Days since 1970-01-01 of a date of the Gregorian calendar.
std::int64_t days_from_date(int year, int month, int day) {
  const int y = month <= 2 ? year - 1 : year;
  const int era = y / 400;  // years are never negative here
  const int year_of_era = y - era * 400;
  const int day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return std::int64_t{era} * 146097 + day_of_era - 719468;
}

struct Moment {
  int year, month, day, hour, minute, second;
};

std::optional<std::int64_t> seconds_of(const Moment& m) {
  if (m.year < 1970 || m.month < 1 || m.month > 12 || m.day < 1 || m.day > 31 || m.hour > 23 ||
      m.minute > 59 || m.second > 60) {
    return std::nullopt;
  }
  return days_from_date(m.year, m.month, m.day) * 86400 + m.hour * 3600 + m.minute * 60 + m.second;
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
  Url url;
  std::size_t at = 0;
  if (skip(text, at, "http://")) {
    url.tls = false;
    url.port = 80;
  } else if (!skip(text, at, "https://")) {
    return bad_url("it must begin with http:// or https://");
  }
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7f || c == '#') {
      return bad_url(
          "spaces, control characters, fragments and letters beyond ASCII have no place");
    }
  }
  const std::size_t slash = std::min(text.find_first_of("/?", at), text.size());
  std::string_view authority = text.substr(at, slash - at);
  if (slash < text.size()) {
    url.target = (text[slash] == '?' ? "/" : "") + std::string(text.substr(slash));
  }
  const bool in_brackets = authority.starts_with('[');
  const std::size_t end =
      in_brackets ? authority.find(']') : std::min(authority.find(':'), authority.size());
  if (end == std::string_view::npos) {
    return bad_url("'[' without ']'");
  }
  const std::string_view host = authority.substr(in_brackets ? 1 : 0, end - (in_brackets ? 1 : 0));
  if (host.empty() || !std::all_of(host.begin(), host.end(),
                                   [&](char c) { return is_host_character(c, in_brackets); })) {
    return bad_url("the host is missing or has characters that hosts do not have");
  }
  std::transform(host.begin(), host.end(), std::back_inserter(url.host), lower);
  authority.remove_prefix(in_brackets ? end + 1 : end);
  if (!authority.empty()) {
    const char* const last = authority.data() + authority.size();
    const auto [rest, error] = std::from_chars(authority.data() + 1, last, url.port);
    if (authority.front() != ':' || error != std::errc() || rest != last || url.port == 0) {
      return bad_url("the port is not a number from 1 to 65535");
    }
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

std::string percent_encode(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    if (is_unreserved(c)) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return encoded;
}

std::string form_encode(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string form;
  for (const auto& [name, value] : fields) {
    form += form.empty() ? "" : "&";
    form += percent_encode(name);
    form += '=';
    form += percent_encode(value);
  }
  return form;
}

std::string base64_encode(std::string_view bytes, bool url_safe) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::string_view kUrlSafe =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const std::string_view alphabet = url_safe ? kUrlSafe : kPlain;
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t block = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      block = block << 8 | (i < have ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      if (i <= have) {
        text += alphabet[block >> (18 - 6 * i) & 63];
      } else if (!url_safe) {
        text += '=';
      }
    }
  }
  return text;
}

std::optional<std::int64_t> parse_http_date(std::string_view text) {
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  if (text.size() != 29 || text.substr(3, 2) != ", " || text.substr(25) != " GMT") {
    return std::nullopt;
  }
  const auto month = std::find(kMonths.begin(), kMonths.end(), text.substr(8, 3));
  std::size_t at = 5;
  const std::optional<int> day = digits_at(text, at, 2);
  at = 12;
  const std::optional<int> year = digits_at(text, at, 4);
  at = 17;
  const std::optional<int> hour = digits_at(text, at, 2);
  at = 20;
  const std::optional<int> minute = digits_at(text, at, 2);
  at = 23;
  const std::optional<int> second = digits_at(text, at, 2);
  if (month == kMonths.end() || !day || !year || !hour || !minute || !second || text[7] != ' ' ||
      text[11] != ' ' || text[16] != ' ' || text[19] != ':' || text[22] != ':') {
    return std::nullopt;
  }
  return seconds_of(
      {*year, static_cast<int>(month - kMonths.begin()) + 1, *day, *hour, *minute, *second});
}

std::optional<std::int64_t> parse_iso_time(std::string_view text) {
  std::array<int, 6> parts{};
  constexpr std::array<std::string_view, 6> kBefore = {"", "-", "-", "T", ":", ":"};
  std::size_t at = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!skip(text, at, kBefore[i])) {
      return std::nullopt;
    }
    const std::optional<int> part = digits_at(text, at, i == 0 ? 4 : 2);
    if (!part) {
      return std::nullopt;
    }
    parts[i] = *part;
  }
  if (skip(text, at, ".")) {
    const std::size_t first = at;
    while (at < text.size() && is_digit(text[at])) {
      ++at;
    }
    if (at == first) {
      return std::nullopt;
    }
  }
  std::int64_t offset = 0;
  if (text.substr(at) != "Z") {
    const int sign = skip(text, at, "+") ? 1 : skip(text, at, "-") ? -1 : 0;
    const std::optional<int> hours = digits_at(text, at, 2);
    const bool colon = skip(text, at, ":");
    const std::optional<int> minutes = digits_at(text, at, 2);
    if (sign == 0 || !colon || !hours || !minutes || at != text.size()) {
      return std::nullopt;
    }
    offset = sign * (std::int64_t{*hours} * 3600 + *minutes * 60);
  }
  const std::optional<std::int64_t> local =
      seconds_of({parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]});
  return local ? std::optional(*local - offset) : std::nullopt;
}

}  // namespace mayfly::cloud_hooks
