#pragma once

// The training of a simulated job: which of its workers compute, when the job begins, how long the
// others wait for a worker that joins or is lost, and the progress of the job. Offers are those of
// the candidate, times are seconds since the job's begin. Pure; one thread.

#include <cstdint>

#include "planner/simulation/draws.hpp"
#include "planner/simulation/progress.hpp"
#include "planner/simulation/working_set.hpp"

namespace mayfly::planner {

class Training {
 public:
  /// `job` must outlive it.
  Training(const Market& market, const JobModel& job, const Candidate& candidate);

  /// A new path.
  void begin(const PathDraws& draws);

  /// Time passes until `to_s`, the instant of the events that are reported below.
  void advance(double to_s) { progress_.advance(to_s); }
  /// A worker on that offer has joined: the others stop for it, or it restores a checkpoint.
  void join(std::size_t offer);
  /// A worker has left with its server: the others do not wait for it.
  void leave(std::size_t offer);
  /// A worker was lost with its server: the others recover; after the loss of the last one the
  /// state is lost.
  void lose(std::size_t offer);
  /// Call it after all events of one instant. `is_stock_out`: requests for the missing workers
  /// found no capacity.
  void update(bool is_stock_out);

  /// The time at which the job begins even if workers are missing; kNever if it has begun, or if no
  /// worker has joined.
  [[nodiscard]] double begins_s() const { return has_begun_ ? kNever : begins_s_; }
  /// When the job will be done if nothing changes; kNever if no worker computes.
  [[nodiscard]] double finish_s() const { return progress_.finish_s(); }
  /// The work that is left, in the job's unit, and the present speed in that unit per second.
  [[nodiscard]] double left() const { return progress_.left(); }
  [[nodiscard]] double speed() const { return progress_.speed(); }
  /// The speed of all the candidate's workers on this one offer.
  [[nodiscard]] double speed_on(std::size_t offer) const;
  /// Sets the numbers of losses, and the account of lost time.
  void report(PathOutcome& outcome) const;

 private:
  const JobModel& job_;
  const std::uint32_t workers_;
  const double checkpoint_every_s_;
  WorkingSet set_;

  // State of the present path:
  Progress progress_;
  double speed_factor_ = 1;
  double begins_s_ = kNever;  // at the latest
  bool has_begun_ = false;
  bool has_been_full_ = false;
  bool has_lost_all_ = false;  // and no worker has joined since then
  std::uint32_t losses_ = 0;
  std::uint32_t all_lost_ = 0;
};

}  // namespace mayfly::planner
