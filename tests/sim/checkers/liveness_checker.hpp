#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "elastic/core/coordinator.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Checks liveness: once no more faults begin, the job is done within a bound.
class LivenessChecker {
 public:
  LivenessChecker(Violations& violations, Instant bound) : violations_(violations), bound_(bound) {}
  /// False if the bound is passed and the run should be given up.
  [[nodiscard]] bool on_time(Instant now, const std::string& phase) {
    if (now <= bound_) {
      return true;
    }
    violations_.add("the job does not end; the coordinator is " + phase);
    return false;
  }
  /// An operator stops the job: it must end within `most`, counted from `calm_from`.
  void on_stop_asked(Instant calm_from, Duration most) {
    is_stop_asked_ = true;
    bound_ = std::min(bound_, calm_from + most);
  }
  /// `may_fail`: a fault occurred that a job need not survive.
  void on_ended(elastic::Outcome outcome, bool may_fail = false) {
    failed_ = outcome == elastic::Outcome::kFailed && may_fail;
    stopped_ = outcome == elastic::Outcome::kStopped && is_stop_asked_;
    violations_.expect(outcome == elastic::Outcome::kDone || failed_ || stopped_,
                       "the job ended, but is not done");
    violations_.expect(!ended_, "the job ended twice");
    ended_ = true;
  }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  Violations& violations_;
  Instant bound_;
  bool ended_ = false;
  bool failed_ = false;
  bool is_stop_asked_ = false;
  bool stopped_ = false;
};

}  // namespace mayfly::sim
