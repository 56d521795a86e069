#pragma once

// A calibration from own runs: the rows of each table that follow from what the runs recorded.
// Pure; any thread.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "planner/calibration/calibration.hpp"
#include "planner/runs/run_facts.hpp"

namespace mayfly::planner {

/// The rows of one run.
struct FittedRun {
  std::string name, date;
  Calibration rows;
  std::vector<std::string> remarks;  ///< facts that it lacks, or how a value was inferred
};

/// The rows of each run, the newest first, as Prices takes the first price that it finds. Machine
/// types whose workers have other numbers of threads or cores in other runs get these numbers as a
/// suffix.
/// kInvalidInput if two runs of one model cannot be compared.
[[nodiscard]] Result<std::vector<FittedRun>> fit_runs(std::vector<RunFacts> runs);

/// All tables that have rows, with the columns `run_dir` and `date` beside those of
/// calibration.hpp.
[[nodiscard]] std::vector<TableText> tables_of(const std::vector<FittedRun>& runs);

}  // namespace mayfly::planner
