#pragma once

// When a job that has a deadline falls back to servers on demand: once the rest of the work at
// their speed takes as long as the time that is left. Only plans have this rule; ReplacementPolicy
// has none like it. Times are seconds since the job's begin. Pure; one thread.

#include "planner/simulation/candidate_offers.hpp"
#include "planner/simulation/demand.hpp"
#include "planner/simulation/training.hpp"

namespace mayfly::planner {

class FallBack {
 public:
  /// All but `candidate` must outlive it.
  FallBack(const CandidateOffers& offers, const JobModel& job, const Candidate& candidate,
           const Training& training, Demand& demand);

  /// A new path, for which the training has begun.
  void begin();
  /// Call it after all events of one instant. Falls back if that is due, or plans when to do it if
  /// nothing changes before.
  void plan(double now_s);
  /// When to call Demand::fall_back(); kNever if that is not expected.
  [[nodiscard]] double due_s() const { return due_s_; }

 private:
  const CandidateOffers& offers_;
  const JobModel& job_;
  const Training& training_;
  Demand& demand_;
  const bool is_wanted_;

  // State of the present path:
  double speed_ = 0;    // of all workers on the fastest on-demand offer; 0 = none
  double start_s_ = 0;  // from the request until a server of that offer works
  double due_s_ = kNever;
};

}  // namespace mayfly::planner
