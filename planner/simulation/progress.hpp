#pragma once

// The progress of a simulated job: the work done at piecewise constant speed, interruptions, the
// return to the last checkpoint after a loss of all workers, and an account of lost time. Pure; one
// thread.

#include "planner/simulation/market.hpp"

namespace mayfly::planner {

/// Why workers are missing.
enum class Shortage { kNone, kStarting, kLost, kStockOut };

class Progress {
 public:
  /// `full_speed`: of all workers, for the account of lost time.
  Progress(const JobModel& job, double checkpoint_every_s, double full_speed);

  /// Time passes until `to_s` with the present speed.
  void advance(double to_s);
  /// The speed from now on, and the reason if it is not the full one.
  void set_speed(double speed, Shortage why);
  /// All workers wait until `at_s` at least.
  void stop_until(double at_s);
  /// No worker has the state any more: the work since the last checkpoint is lost.
  void lose_state();
  /// When the job will be done if nothing changes; kNever if no worker works.
  [[nodiscard]] double finish_s() const;
  [[nodiscard]] double left() const { return work_ - done_; }
  [[nodiscard]] double speed() const { return speed_; }
  [[nodiscard]] double now() const { return now_s_; }
  /// Adds the account of lost time.
  void report(PathOutcome& outcome) const;

 private:
  double work_;
  double every_s_;
  double useful_;  // share of the time between two checkpoints that is not the checkpoint
  double full_speed_;
  double now_s_ = 0;
  double done_ = 0;
  double saved_ = 0;          // in the last checkpoint
  double since_saved_s_ = 0;  // time at work since then
  double speed_ = 0;
  double stopped_until_s_ = 0;
  Shortage shortage_ = Shortage::kStarting;
  PathOutcome account_;
};

}  // namespace mayfly::planner
