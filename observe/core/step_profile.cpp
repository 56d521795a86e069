#include "observe/core/step_profile.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "observe/core/records_json.hpp"

namespace mayfly::observe {
namespace {

/// Joins two successive stretches.
void join(StepProfile::Stretch& into, const StepProfile::Stretch& next) {
  into.last = next.last;
  into.steps += next.steps;
  for (std::size_t part = 0; part < kStepParts; ++part) {
    into.seconds[part] += next.seconds[part];
  }
  for (const auto& [member, steps] : next.ready_last) {
    into.ready_last[member] += steps;
  }
}

}  // namespace

void StepProfile::add(const boost::json::object& record, bool is_late) {
  const boost::json::value* field = record.if_contains("before");
  if (field == nullptr || !field->is_object()) {
    return;
  }
  const boost::json::object& before = field->get_object();
  const std::optional<std::uint64_t> member = whole(before, "slowest");
  const std::optional<std::uint64_t> step = whole(record, "step");
  if (!member || !step) {
    return;
  }
  Stretch& stretch = is_late && !stretches_.empty() ? stretch_around(*step) : stretch_for(*step);
  ++stretch.ready_last[*member];
  Slowest& slowest = slowest_[*member];
  ++slowest.steps;
  ++steps_;
  for (std::size_t part = 0; part < kStepParts; ++part) {
    const std::string name = std::string(kStepPartNames[part]) + "_ms";
    const double seconds = std::max(0.0, number(before, name).value_or(0)) / 1000;
    slowest.seconds[part] += seconds;
    stretch.seconds[part] += seconds;
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

void StepProfile::begin_part() {
  steps_ = 0;
  seconds_ = {};
  slowest_.clear();
  held_up_.clear();
}

/// Returns the stretch of a new step, and counts the step in it.
StepProfile::Stretch& StepProfile::stretch_for(std::uint64_t step) {
  while (!stretches_.empty() && stretches_.back().first >= step) {
    stretches_.pop_back();
  }
  const bool goes_back = !stretches_.empty() && stretches_.back().last >= step;
  if (goes_back) {
    stretches_.back().last = step - 1;  // its times still include its undone steps
  }
  if (stretches_.empty() || goes_back || stretches_.back().steps >= steps_of_stretch_) {
    if (stretches_.size() == kStretchesMax) {
      for (std::size_t i = 0; i < kStretchesMax / 2; ++i) {
        stretches_[i] = std::move(stretches_[2 * i]);
        join(stretches_[i], stretches_[2 * i + 1]);
      }
      stretches_.resize(kStretchesMax / 2);
      steps_of_stretch_ *= 2;
    }
    stretches_.emplace_back().first = step;
  }
  stretches_.back().last = step;
  ++stretches_.back().steps;
  return stretches_.back();
}

/// Returns the stretch of a late step, and counts the step in it. There is a stretch.
StepProfile::Stretch& StepProfile::stretch_around(std::uint64_t step) {
  const auto next = std::ranges::upper_bound(stretches_, step, {}, &Stretch::first);
  Stretch& stretch = next == stretches_.begin() ? *next : *(next - 1);
  stretch.first = std::min(stretch.first, step);
  stretch.last = std::max(stretch.last, step);
  ++stretch.steps;
  return stretch;
}

std::uint64_t StepProfile::Stretch::slowest() const {
  ENSURE(!ready_last.empty(), "a stretch has a step");
  return std::ranges::max_element(ready_last, {}, [](const auto& each) { return each.second; })
      ->first;
}

double StepProfile::Slowest::until_ready() const {
  return std::accumulate(seconds.begin(), seconds.begin() + kReadyParts, 0.0);
}

double StepProfile::total() const {
  return std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
}

}  // namespace mayfly::observe
