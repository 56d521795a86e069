#pragma once

// Parsing of small texts: numbers, and lists with a separator between their parts. Settings in one
// text (cuda:1, kill@step=200:worker=1, delay=30ms,worker=1) are read with these functions. Pure;
// the parts point into the text.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace mayfly {

/// The number in the text. Nothing if the whole text is not a number, the type cannot hold the
/// number, or it is not finite.
template <typename T>
[[nodiscard]] std::optional<T> number_in(std::string_view text) {
  T number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = failure == std::errc{} && end == text.data() + text.size();
  return is_whole && std::isfinite(static_cast<double>(number)) ? std::optional(number)
                                                                : std::nullopt;
}

/// The same if the number lies within these bounds, both included.
template <typename T>
[[nodiscard]] std::optional<T> number_in(std::string_view text, T least, T most) {
  const std::optional<T> number = number_in<T>(text);
  return number && *number >= least && *number <= most ? number : std::nullopt;
}

/// A number of bytes with a unit, such as "8GiB", "1.5GB", "500MB" or "4096" (bytes). Nothing if
/// the text is none, or is 2^62 bytes or more.
[[nodiscard]] inline std::optional<std::uint64_t> bytes_in(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3},
      {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"B", 1},        {"", 1}};
  for (const auto& [unit, bytes] : kUnits) {
    if (text.ends_with(unit)) {
      text.remove_suffix(unit.size());
      const std::optional<double> number = number_in<double>(text);
      const double all = number.value_or(-1) * bytes;
      return all >= 0 && all < 0x1p62 ? std::optional(static_cast<std::uint64_t>(all))
                                      : std::nullopt;
    }
  }
  return std::nullopt;
}

/// The same if the number lies within these bounds, both included.
[[nodiscard]] inline std::optional<std::uint64_t> bytes_in(std::string_view text,
                                                           std::uint64_t least,
                                                           std::uint64_t most) {
  const std::optional<std::uint64_t> bytes = bytes_in(text);
  return bytes && *bytes >= least && *bytes <= most ? bytes : std::nullopt;
}

/// The text without the spaces, tabs and ends of lines around it.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// The parts before and after the first separator, without spaces around them; without a separator
/// the second part is empty.
[[nodiscard]] inline std::pair<std::string_view, std::string_view> cut(std::string_view text,
                                                                       char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  return {trimmed(text.substr(0, end)), trimmed(text.substr(std::min(end + 1, text.size())))};
}

/// The parts between separators, without spaces around them, perhaps empty; none for an empty text.
[[nodiscard]] inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

}  // namespace mayfly
