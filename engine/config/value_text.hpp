#pragma once

// How the value of a setting is written as text, the same for flags, the environment and files.
// Pure; no thread matters.

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/try_assign.hpp"

namespace mayfly::engine {

/// kInvalidInput with the expected form of a value and the given text.
[[nodiscard]] Error unexpected_value(const std::string& expected, std::string_view given);

/// Parses a whole number from 0 to `most` that also fits into a TOML integer.
[[nodiscard]] Result<std::uint64_t> parse_whole(std::string_view text, std::uint64_t most);

/// Each sets `value` to the parsed text. On kInvalidInput, whose text continues a sentence that
/// begins with the setting's name, `value` is unchanged. A text must be UTF-8 without control
/// characters.
[[nodiscard]] Result<void> parse_value(bool& value, std::string_view text);
[[nodiscard]] Result<void> parse_value(double& value, std::string_view text);
[[nodiscard]] Result<void> parse_value(std::string& value, std::string_view text);
template <std::integral T>
[[nodiscard]] Result<void> parse_value(T& value, std::string_view text) {
  TRY_ASSIGN(const std::uint64_t number, parse_whole(text, std::numeric_limits<T>::max()));
  value = static_cast<T>(number);
  return {};
}

/// The text that reads back to the same value.
[[nodiscard]] std::string value_text(bool value);
[[nodiscard]] std::string value_text(double value);
[[nodiscard]] std::string value_text(const std::string& value);
template <std::integral T>
[[nodiscard]] std::string value_text(T value) {
  return std::to_string(value);
}

}  // namespace mayfly::engine
