#include "engine/config/toml_keys.hpp"

#include <algorithm>

namespace mayfly::engine {
namespace {

/// Where the string that begins at `begin` is over; one that is never closed ends with its line, or
/// with the text if it may have several lines. The parser says that it is wrong.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  const char mark = text[begin];
  const std::string three(3, mark);
  const bool has_lines = text.substr(begin, 3) == three;
  const std::string_view closing = std::string_view(three).substr(0, has_lines ? 3 : 1);
  for (std::size_t at = begin + closing.size(); at < text.size(); ++at) {
    if (mark == '"' && text[at] == '\\') {
      ++at;
    } else if (text[at] == '\n' && !has_lines) {
      return at;
    } else if (text.substr(at).starts_with(closing)) {
      at += closing.size();
      // Up to two more belong to the string itself.
      for (int more = 0; has_lines && more < 2 && text.substr(at).starts_with(mark); ++more) {
        ++at;
      }
      return at;
    }
  }
  return text.size();
}

}  // namespace

Result<void> check_key_parts(std::string_view toml, const std::string& file_name) {
  std::size_t line = 1;
  std::size_t parts = 1;  // since the last sign that no key contains
  for (std::size_t at = 0; at < toml.size();) {
    const char c = toml[at];
    std::size_t next = at + 1;
    if (c == '"' || c == '\'') {
      next = end_of_string(toml, at);
    } else if (c == '#') {
      next = std::min(toml.find('\n', at), toml.size());
    } else if (c == '.') {
      ++parts;
    } else if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) {
      parts = 1;
    }
    if (parts > kKeyPartsMax) {
      return Error{Errc::kInvalidInput, file_name + " line " + std::to_string(line) +
                                            ": a key of more than " + std::to_string(kKeyPartsMax) +
                                            " parts; no setting has such a name"};
    }
    const std::string_view passed = toml.substr(at, next - at);
    line += static_cast<std::size_t>(std::count(passed.begin(), passed.end(), '\n'));
    at = next;
  }
  return {};
}

}  // namespace mayfly::engine
