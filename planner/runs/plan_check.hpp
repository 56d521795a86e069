#pragma once

// A plan against what came of it: predictions beside actual values, and the error of the total time
// taken apart by substitution. Pure; any thread. Times in seconds.

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "planner/calibration/calibration.hpp"
#include "planner/estimate.hpp"
#include "planner/runs/run_facts.hpp"

namespace mayfly::planner {

struct CheckedQuantity {
  std::string name;
  std::optional<Estimate> predicted;
  std::optional<double> actual;
  std::string missing;  ///< why there is no prediction or no actual value; empty if there are both

  /// Whether the actual value is in the interval; nothing without one of them.
  [[nodiscard]] std::optional<bool> is_inside() const;
};

/// By how much the total time changes if the actual value takes the place of the predicted one.
struct TimeCause {
  std::string name;
  double seconds = 0;
};

struct PlanCheck {
  std::vector<CheckedQuantity> quantities;
  double planned_s = 0;  ///< the workers of the first step all the time
  double actual_s = 0;
  std::vector<TimeCause> causes;  ///< they add up to the difference; the largest first
};

/// Plans the run in hindsight with this calibration: its first workers, its steps, no losses.
/// kNotFound if the calibration has no speed of them.
[[nodiscard]] Result<PlanCheck> check_plan(const RunFacts& run, const RunCourse& course,
                                           const Calibration& calibration);

}  // namespace mayfly::planner
