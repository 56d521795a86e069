#pragma once

// What `mayfly status` says of the rest of a job: the coordinator's answer together with the
// records in the run directory, and with the plan that lies there or that the user names. One
// thread.

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
  /// `plan_file`: in place of the plan in the run directory; may be empty. Without records, nothing
  /// is said of the rest. kInvalidInput if the plan that the user names cannot be read.
  [[nodiscard]] static Result<RemainingTime> open(const std::string& run_dir,
                                                  const std::string& plan_file);

  /// Adds to the coordinator's answer: with `in_words` a line of text each, otherwise the object
  /// `remaining`. Reads what the records have got since.
  void add_to(boost::json::object& status, bool in_words);

 private:
  std::unique_ptr<observe::RunFollower> records_;  // null = none
  std::optional<planner::KeptPlan> plan_;
};

}  // namespace mayfly::cli
