#pragma once

// The clock of one simulated process. It starts at any instant and runs slightly too fast or too
// slow, but never jumps. So tests fail if code compares instants of two processes, or assumes that
// a second is equally long on two hosts.

#include <cstdint>

#include "base/time.hpp"

namespace mayfly::sim {

class SimClock {
 public:
  SimClock() = default;
  /// Shows `origin` at the beginning and gains `per_mille` (more than -1000) from then on.
  SimClock(Duration origin, std::int64_t per_mille) : origin_(origin), rate_(1000 + per_mille) {}

  /// The instant that it shows at an instant of the simulation.
  [[nodiscard]] Instant at(Instant truth) const {
    return Instant{} + origin_ + shown(truth - Instant{});
  }
  /// The time that passes on this clock during `truth`.
  [[nodiscard]] Duration shown(Duration truth) const { return truth * rate_ / 1000; }
  /// The simulated time in which `shown` passes on this clock.
  [[nodiscard]] Duration real(Duration shown) const { return shown * 1000 / rate_; }

 private:
  Duration origin_{};
  std::int64_t rate_ = 1000;  // units shown per 1000 simulated ones
};

}  // namespace mayfly::sim
