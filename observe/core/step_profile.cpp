#include "observe/core/step_profile.hpp"

#include <numeric>
#include <string>
#include <string_view>

#include "observe/core/records_json.hpp"

namespace mayfly::observe {
namespace {

constexpr std::size_t kPrep = 2;
static_assert(std::string_view(kStepPartNames[kPrep]) == "prep");

}  // namespace

void StepProfile::add(const boost::json::object& record) {
  const boost::json::value* field = record.if_contains("before");
  if (field == nullptr || !field->is_object()) {
    return;
  }
  const boost::json::object& before = field->get_object();
  const std::optional<std::uint64_t> member = whole(before, "slowest");
  if (!member) {
    return;
  }
  Slowest& slowest = slowest_[*member];
  ++slowest.steps;
  ++steps_;
  const auto add = [&](std::size_t part, const std::string& name) {
    const double seconds = std::max(0.0, number(before, name).value_or(0)) / 1000;
    slowest.seconds[part] += seconds;
    seconds_[part] += seconds;
  };
  for (std::size_t part = 0; part < kStepParts; ++part) {
    add(part, std::string(kStepPartNames[part]) + "_ms");
  }
  // Of an earlier version, which did not tell reading and preparing apart.
  add(kPrep, "data_ms");
  const boost::json::value* late = before.if_contains("held_up");
  if (late != nullptr && late->is_object()) {
    if (const std::optional<std::uint64_t> who = whole(late->get_object(), "member")) {
      HeldUp& held = held_up_[*who];
      ++held.steps;
      held.seconds += std::max(0.0, number(late->get_object(), "ms").value_or(0)) / 1000;
    }
  }
}

double StepProfile::Slowest::until_ready() const {
  return std::accumulate(seconds.begin(), seconds.begin() + kReadyParts, 0.0);
}

double StepProfile::total() const {
  return std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
}

}  // namespace mayfly::observe
