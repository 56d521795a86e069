#pragma once

// The clock of one simulated process: it starts anywhere and runs at a rate of its own, but never
// jumps. Whoever compares instants of two processes, or counts on one second being a second
// elsewhere, is found out.

#include <cstdint>

#include "base/time.hpp"

namespace mayfly::sim {

class SimClock {
 public:
  SimClock() = default;
  /// Shows `origin` at the beginning and gains `per_mille` (more than -1000) from then on.
  SimClock(Duration origin, std::int64_t per_mille) : origin_(origin), rate_(1000 + per_mille) {}

  /// What it shows at an instant of the simulation.
  [[nodiscard]] Instant at(Instant truth) const {
    return Instant{} + origin_ + shown(truth - Instant{});
  }
  /// What it shows to have passed.
  [[nodiscard]] Duration shown(Duration truth) const { return truth * rate_ / 1000; }
  /// What really passes until it shows so much.
  [[nodiscard]] Duration real(Duration shown) const { return shown * 1000 / rate_; }

 private:
  Duration origin_{};
  std::int64_t rate_ = 1000;  // shown for 1000 real ones
};

}  // namespace mayfly::sim
