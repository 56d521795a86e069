#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/time.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Checks that planned joins and leaves do not delay the other members for long: while there are no
/// faults, the next step is committed within the time in which the slowest member could compute all
/// of it.
class PaceChecker {
 public:
  /// `longest`: the longest time of a step with a planned change.
  PaceChecker(Violations& violations, Duration longest)
      : violations_(violations), longest_(longest) {}

  /// A fault that may delay steps, now or for a while.
  void on_fault(Instant now) { excused_until_ = std::max(excused_until_, now + kExcused); }
  /// The first member has committed the step.
  void on_step(std::uint64_t step, Instant now) {
    const Duration took = now - last_;
    const bool is_judged = step == last_step_ + 1 && last_ > excused_until_;
    violations_.expect(!is_judged || took <= longest_, [&] {
      return "step " + std::to_string(step) + " took " +
             std::to_string(static_cast<long>(to_ms(took))) + " ms though nothing had happened";
    });
    last_ = now;
    last_step_ = step;
  }

 private:
  static constexpr Duration kExcused = milliseconds(700);  // covers the eviction of a silent member

  Violations& violations_;
  Duration longest_;
  Instant excused_until_;
  Instant last_;
  std::uint64_t last_step_ = 0;
};

}  // namespace mayfly::sim
