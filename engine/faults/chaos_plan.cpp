#include "engine/faults/chaos_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace mayfly::engine {
namespace {

Error wrong(std::string_view event, std::string_view why) {
  return {Errc::kInvalidInput,
          fmt::format("chaos event '{}': {}; an example: kill@step=200:worker=1,join@step=300",
                      event, why)};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::optional<ChaosKind> kind_of(std::string_view name) {
  if (name == "kill")
    return ChaosKind::kKill;
  if (name == "stop")
    return ChaosKind::kStop;
  if (name == "drain")
    return ChaosKind::kDrain;
  if (name == "join")
    return ChaosKind::kJoin;
  if (name == "hang")
    return ChaosKind::kHang;
  if (name == "flip_weights")
    return ChaosKind::kFlipWeights;
  if (name == "flip_momentum")
    return ChaosKind::kFlipMomentum;
  if (name == "flip_statistics")
    return ChaosKind::kFlipStatistics;
  if (name == "flip_result")
    return ChaosKind::kFlipResult;
  return std::nullopt;
}

/// Of what a worker does by itself; null = it is done to it.
const char* name_in_worker(ChaosKind kind) {
  switch (kind) {
    case ChaosKind::kHang: return "hang";
    case ChaosKind::kFlipWeights: return "flip_weights";
    case ChaosKind::kFlipMomentum: return "flip_momentum";
    case ChaosKind::kFlipStatistics: return "flip_statistics";
    case ChaosKind::kFlipResult: return "flip_result";
    default: return nullptr;
  }
}

Result<ChaosEvent> parse_event(std::string_view text) {
  const std::size_t at = text.find('@');
  const std::optional<ChaosKind> kind = kind_of(text.substr(0, at));
  if (!kind.has_value() || at == std::string_view::npos) {
    return wrong(
        text,
        "it must begin with kill@, stop@, drain@, join@, hang@ or flip_weights@, flip_momentum@, "
        "flip_statistics@, flip_result@");
  }
  ChaosEvent event;
  event.kind = *kind;
  event.for_ms = *kind == ChaosKind::kHang ? 600'000 : event.for_ms;
  for (const std::string_view field : split(text.substr(at + 1), ':')) {
    const std::size_t equals = field.find('=');
    std::uint64_t number = 0;
    const std::string_view digits =
        equals == std::string_view::npos ? "" : field.substr(equals + 1);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
      return wrong(text, fmt::format("'{}' is not NAME=NUMBER", field));
    }
    const std::string_view name = field.substr(0, equals);
    if (name == "step") {
      event.step = number;
    } else if (name == "worker") {
      event.worker = static_cast<std::uint32_t>(number);
    } else if (name == "for") {
      event.for_ms = static_cast<std::uint32_t>(number);
    } else {
      return wrong(text, fmt::format("'{}' is none of step, worker, for", name));
    }
  }
  return event;
}

}  // namespace

Result<std::vector<ChaosEvent>> parse_chaos_plan(const std::string& text) {
  std::vector<ChaosEvent> events;
  for (const std::string_view part : split(text, ',')) {
    Result<ChaosEvent> event = parse_event(part);
    if (!event.ok()) {
      return std::move(event).error();
    }
    events.push_back(event.value());
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const ChaosEvent& a, const ChaosEvent& b) { return a.step < b.step; });
  return events;
}

std::string chaos_of_worker(const std::vector<ChaosEvent>& plan, std::uint32_t worker) {
  std::string text;
  for (const ChaosEvent& event : plan) {
    if (const char* name = name_in_worker(event.kind);
        name != nullptr && event.worker.value_or(0) == worker) {
      text += fmt::format("{}{}@step={}:for={}", text.empty() ? "" : ",", name, event.step,
                          event.for_ms);
    }
  }
  return text;
}

}  // namespace mayfly::engine
