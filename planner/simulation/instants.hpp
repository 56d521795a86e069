#pragma once

// Converts the seconds of a simulated job to the instants and durations of the replacement policy.
// Pure.

#include <cmath>

#include "base/time.hpp"

namespace mayfly::planner {

[[nodiscard]] inline Instant instant_of(double at_s) {
  return Instant{static_cast<std::int64_t>(std::llround(at_s * 1e9))};
}

[[nodiscard]] inline Duration duration_of(double length_s) {
  return Duration(static_cast<std::int64_t>(std::llround(length_s * 1e9)));
}

[[nodiscard]] inline double seconds_of(Instant at) {
  return static_cast<double>(at.ns) / 1e9;
}

}  // namespace mayfly::planner
