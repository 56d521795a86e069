#include "engine/config/switch_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {
namespace {

constexpr std::uint64_t kGlobalStepsMax = std::uint64_t{1} << 48;

/// Whole numbers with commas between them, each above the one before.
std::optional<std::vector<std::uint64_t>> growing_numbers(std::string_view text) {
  std::vector<std::uint64_t> numbers;
  for (bool is_last = false; !is_last;) {
    const std::size_t comma = text.find(',');
    is_last = comma == std::string_view::npos;
    const std::string_view word = text.substr(0, comma);
    std::uint64_t number = 0;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool is_whole = failure == std::errc{} && end == word.data() + word.size();
    const std::uint64_t before = numbers.empty() ? 0 : numbers.back();
    if (!is_whole || number <= before || number > kGlobalStepsMax) {
      return std::nullopt;
    }
    numbers.push_back(number);
    text = is_last ? std::string_view{} : text.substr(comma + 1);
  }
  return numbers;
}

Error not_an_order(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

}  // namespace

Result<void> spell_out_switch_order(JobConfig& config) {
  if (config.switch_order.empty() && config.train_steps.empty()) {
    return {};
  }
  if (!config.sync.empty() || !config.phases.empty() || config.steps > 0) {
    return not_an_order("switch_order says what phases, sync and steps say; give one or the other");
  }
  const std::string& order = config.switch_order;
  if (order.empty() || order.find_first_not_of("01") != std::string::npos) {
    return not_an_order(fmt::format("switch_order '{}' is not made of 1 (bsp) and 0 (asp)", order));
  }
  const auto ends = growing_numbers(config.train_steps);
  if (!ends || ends->size() != order.size()) {
    return not_an_order(
        fmt::format("train_steps '{}' is not {} growing whole numbers with commas, one "
                    "for each phase of switch_order {}",
                    config.train_steps, order.size(), order));
  }
  const std::uint64_t slices = slices_per_step(config);
  std::uint64_t before = 0;
  std::uint64_t steps = 0;
  std::string phases;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool is_bsp = order[i] == '1';
    const std::uint64_t length = (*ends)[i] - before;
    const std::uint64_t whole =
        is_bsp ? length : std::max<std::uint64_t>(1, (length + slices / 2) / slices);
    phases += fmt::format("{}{}:{}steps", i == 0 ? "" : ",", is_bsp ? "bsp" : "asp", whole);
    before = (*ends)[i];
    steps += whole;
  }
  config.phases = phases;
  config.steps = steps;
  config.switch_order.clear();
  config.train_steps.clear();
  return {};
}

}  // namespace mayfly::engine
