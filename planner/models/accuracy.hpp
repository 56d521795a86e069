#pragma once

// Final accuracy and time under asynchronous training, and with a switch from synchronous to
// asynchronous training. Pure; any thread.

#include <string>
#include <vector>

#include "planner/calibration/calibration.hpp"
#include "planner/estimate.hpp"

namespace mayfly::planner {

/// The accuracy of one run with `workers` asynchronous workers: a line through the means of
/// training_jobs.csv, weighted by their runs; the spread of a run grows with the workers.
/// kNotFound.
[[nodiscard]] Result<Forecast> asynchronous_accuracy(const Calibration& calibration,
                                                     double workers);

/// Runs of one workload in switch_runs.csv, by the fraction that is trained synchronously first
/// (Sync-Switch, ICDCS 2021).
class SwitchRuns {
 public:
  /// `workload` is the beginning of a group's name, such as "res32/c10 8w"; empty = the first.
  /// kNotFound.
  [[nodiscard]] static Result<SwitchRuns> of(const Calibration& calibration,
                                             const std::string& workload);

  /// The accuracy of one run that does not diverge: linear between measured fractions, and flat
  /// where measurements do not show a difference.
  [[nodiscard]] Forecast accuracy(double fraction) const;
  /// T = p T_sync + (1 - p) T_async + the time of a switch, fitted to all runs. kNotFound without
  /// both ends.
  [[nodiscard]] Result<Forecast> time(double fraction) const;
  /// The chance that a run diverges (its accuracy or its steps are far below the others').
  [[nodiscard]] Forecast divergence(double fraction) const;

 private:
  struct Run {
    double accuracy = 0, time_s = 0;
    bool has_diverged = false;
  };
  struct Point {
    double fraction = 0;
    std::vector<Run> runs;
  };

  std::vector<Point> points_;  ///< by ascending fraction
  std::string workload_;
};

}  // namespace mayfly::planner
