#pragma once

// The prediction of the rest of a job in `mayfly status`: from the coordinator's answer, the
// records in the run directory, and the plan in that directory or on the command line. One thread.

#include <boost/json/fwd.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "observe/run_follower.hpp"
#include "planner/runs/kept_plan.hpp"

namespace mayfly::cli {

class RemainingTime {
 public:
  /// `plan_file` replaces the plan in the run directory; may be empty. Without records there is no
  /// prediction. kInvalidInput if `plan_file` cannot be read.
  [[nodiscard]] static Result<RemainingTime> open(const std::string& run_dir,
                                                  const std::string& plan_file);

  /// Reads new records and adds the prediction to the coordinator's answer: with `in_words` as
  /// lines of text, otherwise as the object `remaining`.
  void add_to(boost::json::object& status, bool in_words);

 private:
  std::unique_ptr<observe::RunFollower> records_;  // null = none
  std::optional<planner::KeptPlan> plan_;
};

}  // namespace mayfly::cli
