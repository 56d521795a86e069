#pragma once

// Compares a plan with its run: predictions beside actual values, and the causes of the error in
// the total time, found by substitution of one value after the other. Pure; any thread. Times in
// seconds.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "planner/calibration/calibration.hpp"
#include "planner/estimate.hpp"
#include "planner/runs/kept_plan.hpp"
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

/// The change of the total time if the actual value replaces the predicted one.
struct TimeCause {
  std::string name;
  double seconds = 0;
};

struct PlanCheck {
  std::vector<CheckedQuantity> quantities;
  double planned_s = 0;  ///< of the steps that the run has
  double actual_s = 0;
  /// They add up to the difference. The largest is first, except that other workers than planned
  /// come before all.
  std::vector<TimeCause> causes;
  // Only for a plan that was kept:
  std::string plan, rests_on;  ///< as KeptPlan has them
  std::string composition;     ///< planned and actual workers if they differ
};

/// Plans the run in hindsight with this calibration: its first workers, its steps, no losses.
/// kNotFound if the calibration has no speed of them.
[[nodiscard]] Result<PlanCheck> check_plan(const RunFacts& run, const RunCourse& course,
                                           const Calibration& calibration);

/// Compares the run with the plan that it was started from, also if it was resumed or has not ended
/// yet; in the latter case, with the corresponding part of the plan. kInvalidInput if the plan is
/// one for another job.
[[nodiscard]] Result<PlanCheck> check_kept_plan(const RunFacts& run, const RunCourse& course,
                                                const KeptPlan& plan);

// Functions for both checks.

/// By number of members, if enough undisturbed steps are known: the speed in steps per second.
[[nodiscard]] std::map<int, double> measured_speeds(const RunFacts& run);
/// The seconds of all steps of the run with these speeds by the number of members.
[[nodiscard]] double work_s(const RunCourse& course, const std::function<double(int)>& speed_at);
/// "1 worker", "2 workers".
[[nodiscard]] std::string count_of_workers(int count);
/// Adds the rest of the difference as a cause of its own, and sorts the causes.
void finish_causes(PlanCheck& check);

}  // namespace mayfly::planner
