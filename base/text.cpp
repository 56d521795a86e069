#include "base/text.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <utility>

namespace mayfly {
namespace {

/// The length of the character that begins with this byte, and the least code point that may be
/// encoded with that length.
struct Form {
  std::size_t bytes = 0;  // 0: no character begins with this byte
  std::uint32_t smallest = 0;
};

Form form_of(unsigned char first) {
  if (first < 0x80) {
    return {1, 0};
  }
  if ((first & 0xe0U) == 0xc0) {
    return {2, 0x80};
  }
  if ((first & 0xf0U) == 0xe0) {
    return {3, 0x800};
  }
  return (first & 0xf8U) == 0xf0 ? Form{4, 0x10000} : Form{};
}

/// True if the word has the same meaning without quotes in any shell, anywhere in a line.
bool is_plain(const std::string& word) {
  constexpr std::string_view kPlain = "-_./:,+@%=";
  const auto is_harmless = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  };
  return !word.empty() && std::all_of(word.begin(), word.end(), is_harmless);
}

/// "[path/file.cc:12] "
std::string_view without_place_before(std::string_view text) {
  const std::size_t end = text.find("] ");
  const std::string_view place = text.substr(0, end);
  const bool is_place = end != std::string_view::npos && place.starts_with('[') &&
                        place.find('/') != std::string_view::npos &&
                        place.find_last_not_of("0123456789") == place.rfind(':');
  return is_place ? text.substr(end + 2) : text;
}

/// " [category:2]", " [category:2 at path/file.hpp:12 in function 'f']"
std::string_view without_place_behind(std::string_view text) {
  const std::size_t begin = text.rfind(" [");
  if (begin == std::string_view::npos || !text.ends_with(']')) {
    return text;
  }
  const std::string_view place = text.substr(begin + 2, text.size() - begin - 3);
  const std::size_t number = place.find(':') + 1;  // 0 without a colon
  const std::size_t end = place.find_first_not_of("-0123456789", number);
  const bool is_code = number > 1 && end != number && place.find('/') >= end;
  const bool is_place =
      is_code && (end == std::string_view::npos || place.substr(end).starts_with(" at "));
  return is_place ? text.substr(0, begin) : text;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const Form form = form_of(first);
    if (form.bytes == 0 || form.bytes > text.size()) {
      return false;
    }
    std::uint32_t character = form.bytes == 1 ? first : first & (0x7fU >> form.bytes);
    for (std::size_t i = 1; i < form.bytes; ++i) {
      const auto next = static_cast<unsigned char>(text[i]);
      if ((next & 0xc0U) != 0x80) {
        return false;
      }
      character = character << 6 | (next & 0x3fU);
    }
    const bool is_surrogate = character >= 0xd800 && character <= 0xdfff;
    if (character < form.smallest || character > 0x10ffff || is_surrogate) {
      return false;
    }
    text.remove_prefix(form.bytes);
  }
  return true;
}

std::string printable(std::string text) {
  const bool has_wide = is_utf8(text);
  std::ranges::replace_if(
      text,
      [has_wide](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (byte < ' ' && c != '\n' && c != '\t') || byte == 0x7f ||
               (byte >= 0x80 && !has_wide);
      },
      '?');
  return text;
}

std::string printable_line(std::string text) {
  text = printable(std::move(text));
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\t'; }, '?');
  return text;
}

std::string last_line_of(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  text = text.substr(0, text.find_last_not_of(kBlank) + 1);
  text.remove_prefix(text.rfind('\n') + 1);
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return std::string(text);
}

std::string shortest_text(double number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    line += (line.empty() ? "" : " ") + (is_plain(word) ? word : shell_quoted(word));
  }
  return line;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string reason_of(const std::exception& failure) {
  return std::string(without_place_behind(without_place_before(failure.what())));
}

}  // namespace mayfly
