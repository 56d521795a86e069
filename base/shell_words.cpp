#include "base/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace mayfly {
namespace {

/// True if the word means the same without quotes to any shell, anywhere in a line.
bool is_plain(const std::string& word) {
  constexpr std::string_view kPlain = "-_./:,+@%=";
  const auto is_harmless = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  };
  return !word.empty() && std::all_of(word.begin(), word.end(), is_harmless);
}

}  // namespace

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

}  // namespace mayfly
