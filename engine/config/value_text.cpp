#include "engine/config/value_text.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/parse.hpp"
#include "base/text.hpp"

namespace mayfly::engine {

Error unexpected_value(const std::string& expected, std::string_view given) {
  return {Errc::kInvalidInput, "expects " + expected + ", got '" + std::string(given) + "'"};
}

Result<std::uint64_t> parse_whole(std::string_view text, std::uint64_t most) {
  constexpr auto kTomlMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  most = std::min(most, kTomlMax);
  const std::optional<std::uint64_t> number = number_in<std::uint64_t>(text, 0, most);
  if (!number) {
    return unexpected_value("a whole number from 0 to " + std::to_string(most), text);
  }
  return *number;
}

Result<void> parse_value(bool& value, std::string_view text) {
  for (const std::string_view yes : {"true", "on", "yes", "1"}) {
    if (text == yes) {
      value = true;
      return {};
    }
  }
  for (const std::string_view no : {"false", "off", "no", "0"}) {
    if (text == no) {
      value = false;
      return {};
    }
  }
  return unexpected_value("true or false", text);
}

Result<void> parse_value(double& value, std::string_view text) {
  const std::optional<double> number = number_in<double>(text);
  if (!number) {
    return unexpected_value("a number", text);
  }
  value = *number;
  return {};
}

Result<void> parse_value(std::string& value, std::string_view text) {
  const auto is_control = [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; };
  if (std::any_of(text.begin(), text.end(), is_control)) {
    return Error{Errc::kInvalidInput, "contains control characters"};
  }
  if (!is_utf8(text)) {  // the records of a job could not contain it
    return Error{Errc::kInvalidInput, "is not valid UTF-8"};
  }
  value = text;
  return {};
}

std::string value_text(bool value) {
  return value ? "true" : "false";
}

std::string value_text(double value) {
  return shortest_text(value);
}

std::string value_text(const std::string& value) {
  return value;
}

}  // namespace mayfly::engine
