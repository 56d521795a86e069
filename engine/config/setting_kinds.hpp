#pragma once

// What reads and prints the kinds of settings; for engine/config/config_settings.cpp only. Pure.

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/text.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine::setting_kinds {

inline Error wrong(const std::string& expected, std::string_view found) {
  return {Errc::kInvalidInput, "expects " + expected + ", got '" + std::string(found) + "'"};
}

/// Numbers beyond 63 bits are refused because a TOML integer cannot hold them.
template <typename T>
std::uint64_t whole_max() {
  constexpr auto kTomlMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return std::min<std::uint64_t>(std::numeric_limits<T>::max(), kTomlMax);
}

template <typename T>
Result<void> parse_whole(T& field, std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size() || number > whole_max<T>()) {
    return wrong("a whole number from 0 to " + std::to_string(whole_max<T>()), text);
  }
  field = static_cast<T>(number);
  return {};
}

inline Result<void> parse_real(double& field, std::string_view text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) {
    return wrong("a number", text);
  }
  field = number;
  return {};
}

inline Result<void> parse_switch(bool& field, std::string_view text) {
  for (const std::string_view yes : {"true", "on", "yes", "1"}) {
    if (text == yes) {
      field = true;
      return {};
    }
  }
  for (const std::string_view no : {"false", "off", "no", "0"}) {
    if (text == no) {
      field = false;
      return {};
    }
  }
  return wrong("true or false", text);
}

inline Result<void> parse_text(std::string& field, std::string_view text) {
  const auto is_control = [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; };
  if (std::any_of(text.begin(), text.end(), is_control)) {
    return Error{Errc::kInvalidInput, "contains control characters"};
  }
  if (!is_utf8(text)) {  // the records of a job could not name it
    return Error{Errc::kInvalidInput, "is not valid UTF-8"};
  }
  field = text;
  return {};
}

/// The shortest text that reads back to the same number.
inline std::string print_real(double number) {
  char buffer[32];
  const auto [end, failure] = std::to_chars(buffer, buffer + sizeof buffer, number);
  return failure == std::errc{} ? std::string(buffer, end) : std::string("0");
}

template <typename T>
requires std::is_integral_v<T> Setting make(std::string name, T JobConfig::*field,
                                            std::string help) {
  return {std::move(name),
          std::move(help),
          SettingKind::kWhole,
          false,
          [field](JobConfig& c, std::string_view text) { return parse_whole(c.*field, text); },
          [field](const JobConfig& c) { return std::to_string(c.*field); }};
}
inline Setting make(std::string name, double JobConfig::*field, std::string help) {
  return {std::move(name),
          std::move(help),
          SettingKind::kReal,
          false,
          [field](JobConfig& c, std::string_view text) { return parse_real(c.*field, text); },
          [field](const JobConfig& c) { return print_real(c.*field); }};
}
inline Setting make(std::string name, bool JobConfig::*field, std::string help) {
  return {std::move(name),
          std::move(help),
          SettingKind::kSwitch,
          true,
          [field](JobConfig& c, std::string_view text) { return parse_switch(c.*field, text); },
          [field](const JobConfig& c) { return std::string(c.*field ? "true" : "false"); }};
}
inline Setting make(std::string name, std::string JobConfig::*field, std::string help) {
  return {std::move(name),
          std::move(help),
          SettingKind::kText,
          false,
          [field](JobConfig& c, std::string_view text) { return parse_text(c.*field, text); },
          [field](const JobConfig& c) { return c.*field; }};
}

}  // namespace mayfly::engine::setting_kinds
