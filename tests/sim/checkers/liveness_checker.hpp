#pragma once

#include <optional>
#include <string>

#include "base/time.hpp"
#include "elastic/core/coordinator.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Once no more faults begin, the job is done within a bound.
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
  /// `may_fail`: something happened that a job need not survive.
  void on_ended(elastic::Outcome outcome, bool may_fail = false) {
    failed_ = outcome == elastic::Outcome::kFailed && may_fail;
    violations_.expect(outcome == elastic::Outcome::kDone || failed_,
                       "the job ended, but is not done");
    violations_.expect(!ended_, "the job ended twice");
    ended_ = true;
  }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  Violations& violations_;
  Instant bound_;
  bool ended_ = false;
  bool failed_ = false;
};

}  // namespace mayfly::sim
