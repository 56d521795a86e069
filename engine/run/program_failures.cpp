#include "engine/run/program_failures.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"

namespace mayfly::engine {

std::string sample_words(const std::vector<std::uint64_t>& samples) {
  constexpr std::size_t kNamed = 12;
  const std::size_t named = std::min(samples.size(), kNamed);
  std::string text;
  for (std::size_t i = 0; i < named; ++i) {
    const bool is_last = i + 1 == samples.size() && i > 0;
    text += fmt::format("{}{}", i == 0 ? "" : is_last ? " and " : ", ", samples[i]);
  }
  return named == samples.size() ? text
                                 : text + fmt::format(" and {} more", samples.size() - named);
}

std::optional<std::string> ProgramFailures::reason_to_end(const ProgramFailureRecord& failure) {
  if (failure.at.empty()) {
    return std::nullopt;
  }
  const auto [first, is_new] = first_at_.try_emplace(failure.at, failure.member);
  if (is_new || first->second == failure.member) {
    return std::nullopt;
  }
  return fmt::format(
      "the program failed in {} on worker {} and on worker {}, so every worker would "
      "fail there; its samples are {}: {}",
      failure.at, first->second, failure.member, sample_words(failure.samples),
      printable(last_line_of(failure.detail)));
}

}  // namespace mayfly::engine
