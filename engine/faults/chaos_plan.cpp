#include "engine/faults/chaos_plan.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <span>
#include <string_view>

#include "base/parse.hpp"
#include "base/random.hpp"
#include "base/try_assign.hpp"

namespace mayfly::engine {
namespace {

Error wrong(std::string_view event, std::string_view why) {
  return {Errc::kInvalidInput,
          fmt::format("chaos event '{}': {}; an example: kill@step=200:worker=1,join@step=300",
                      event, why)};
}

/// The kinds with their names, in the order of ChaosKind.
constexpr std::pair<ChaosKind, std::string_view> kKinds[] = {
    {ChaosKind::kKill, "kill"},
    {ChaosKind::kStop, "stop"},
    {ChaosKind::kDrain, "drain"},
    {ChaosKind::kJoin, "join"},
    {ChaosKind::kHang, "hang"},
    {ChaosKind::kFlipWeights, "flip_weights"},
    {ChaosKind::kFlipMomentum, "flip_momentum"},
    {ChaosKind::kFlipStatistics, "flip_statistics"},
    {ChaosKind::kFlipResult, "flip_result"}};

Result<ChaosEvent> parse_event(std::string_view text) {
  const auto [name, fields] = cut(text, '@');
  const auto* const kind =
      std::ranges::find(kKinds, name, &std::pair<ChaosKind, std::string_view>::second);
  if (kind == std::end(kKinds) || text.find('@') == std::string_view::npos) {
    return wrong(
        text,
        "it must begin with kill@, stop@, drain@, join@, hang@ or flip_weights@, flip_momentum@, "
        "flip_statistics@, flip_result@");
  }
  ChaosEvent event;
  bool has_step = false;
  event.kind = kind->first;
  event.for_ms = event.kind == ChaosKind::kHang ? 600'000 : event.for_ms;
  for (const std::string_view field : split(fields, ':')) {
    const auto [key, digits] = cut(field, '=');
    const auto number = number_in<std::uint64_t>(digits);
    const auto small_number = number_in<std::uint32_t>(digits);
    if (!number || (key != "step" && !small_number)) {
      return wrong(text, fmt::format("'{}' is not NAME=NUMBER", field));
    }
    if (key == "step") {
      event.step = *number;
      has_step = true;
    } else if (key == "worker") {
      event.worker = *small_number;
    } else if (key == "for") {
      event.for_ms = *small_number;
    } else {
      return wrong(text, fmt::format("'{}' is not one of step, worker, for", key));
    }
  }
  return has_step ? Result<ChaosEvent>(event) : wrong(text, "it must name its step");
}

/// The lowest bit of the exponent: the number is doubled or halved, and stays finite.
constexpr std::uint32_t kBit = 1U << 23;

void flip(std::span<float> values, std::uint64_t step) {
  float& value = values[mix64(step) % values.size()];
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ kBit);
}

}  // namespace

Result<std::vector<ChaosEvent>> parse_chaos_plan(const std::string& text) {
  std::vector<ChaosEvent> events;
  for (const std::string_view part : split(text, ',')) {
    if (part.empty()) {
      continue;
    }
    TRY_ASSIGN(ChaosEvent event, parse_event(part));
    events.push_back(event);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const ChaosEvent& a, const ChaosEvent& b) { return a.step < b.step; });
  return events;
}

std::string chaos_of_worker(const std::vector<ChaosEvent>& plan, std::uint32_t worker) {
  std::string text;
  for (const ChaosEvent& event : plan) {
    if (is_of_worker(event.kind) && event.worker.value_or(0) == worker) {
      text += fmt::format("{}{}@step={}:for={}", text.empty() ? "" : ",",
                          kKinds[static_cast<std::size_t>(event.kind)].second, event.step,
                          event.for_ms);
    }
  }
  return text;
}

StateFaults::StateFaults(const std::vector<ChaosEvent>& events) {
  for (const ChaosEvent& event : events) {
    if (flips_a_bit(event.kind)) {
      events_.push_back(event);
    }
  }
}

bool StateFaults::due(Step committed) const {
  return std::ranges::any_of(
      events_, [committed](const ChaosEvent& event) { return value(committed) >= event.step; });
}

void StateFaults::after_commit(nn::ModelState& state) {
  std::erase_if(events_, [&state](const ChaosEvent& event) {
    if (value(state.committed) < event.step) {
      return false;
    }
    switch (event.kind) {
      case ChaosKind::kFlipWeights: flip(state.parameters.span(), event.step); break;
      case ChaosKind::kFlipMomentum: flip(state.momentum.span(), event.step); break;
      case ChaosKind::kFlipStatistics: flip(state.statistics.span(), event.step); break;
      default: break;
    }
    return true;
  });
}

}  // namespace mayfly::engine
