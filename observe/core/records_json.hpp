#pragma once

// Reads fields of a record; a default replaces a field that is missing or has another type. Pure.

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mayfly::observe {

/// Longer texts in records are cut.
inline constexpr std::size_t kTextBytesMax = 400;

/// At most `bytes_max` bytes of `text`, in whole characters.
[[nodiscard]] inline std::string cut(std::string_view text, std::size_t bytes_max = kTextBytesMax) {
  std::size_t end = std::min(text.size(), bytes_max);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(text.substr(0, end)) + (end < text.size() ? "..." : "");
}

[[nodiscard]] inline std::optional<double> number(const boost::json::object& object,
                                                  std::string_view name) {
  const boost::json::value* field = object.if_contains(name);
  if (field == nullptr || !field->is_number()) {
    return std::nullopt;
  }
  const auto value = field->to_number<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

[[nodiscard]] inline std::optional<std::uint64_t> whole(const boost::json::object& object,
                                                        std::string_view name) {
  const std::optional<double> value = number(object, name);
  constexpr double kMost = 9007199254740992.0;  // 2^53
  return value && *value >= 0 && *value <= kMost ? std::optional(static_cast<std::uint64_t>(*value))
                                                 : std::nullopt;
}

[[nodiscard]] inline std::string text(const boost::json::object& object, std::string_view name) {
  const boost::json::value* field = object.if_contains(name);
  return field != nullptr && field->is_string() ? cut(field->get_string()) : std::string();
}

/// The object in one line of JSON, or nothing.
[[nodiscard]] inline std::optional<boost::json::object> parse_object(std::string_view line) {
  boost::system::error_code failure;
  boost::json::value value = boost::json::parse(line, failure);
  if (failure || !value.is_object()) {
    return std::nullopt;
  }
  return std::move(value.get_object());
}

}  // namespace mayfly::observe
