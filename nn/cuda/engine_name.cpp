#include "nn/cuda/engine_name.hpp"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace mayfly::nn::cuda {
namespace {

constexpr const char* kUnfusedWord = "unfused";

/// Takes a number off the front of `text`; false if there is none.
template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) {
    return false;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) {
    return false;
  }
  text.remove_prefix(word.size());
  return true;
}

}  // namespace

std::string EngineName::text() const {
  if (is_unfused()) {
    return kUnfusedWord;
  }
  std::string text = fmt::format("eng{}", index);
  for (const auto& [type, setting] : knobs) {
    text += fmt::format("_k{}={}", type, setting);
  }
  return text;
}

Result<EngineName> EngineName::parse(std::string_view text) {
  EngineName name;
  if (text == kUnfusedWord) {
    name.index = kUnfused;
    return name;
  }
  std::string_view rest = text;
  bool understood = take_word(rest, "eng") && take_number(rest, name.index);
  while (understood && !rest.empty()) {
    auto& [type, setting] = name.knobs.emplace_back();
    understood = take_word(rest, "_k") && take_number(rest, type) && take_word(rest, "=") &&
                 take_number(rest, setting);
  }
  // One way to write each, so that equal tables have equal digests.
  if (!understood || name.text() != text) {
    return Error{Errc::kCorrupt, fmt::format("'{}' is no engine of cuDNN's", text)};
  }
  return name;
}

}  // namespace mayfly::nn::cuda
