#include "observe/core/step_profile.hpp"

#include <numeric>
#include <string>

#include "observe/core/records_json.hpp"

namespace mayfly::observe {

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
  for (std::size_t part = 0; part < kStepParts; ++part) {
    const std::string name = std::string(kStepPartNames[part]) + "_ms";
    const double seconds = std::max(0.0, number(before, name).value_or(0)) / 1000;
    slowest.seconds[part] += seconds;
    seconds_[part] += seconds;
  }
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
