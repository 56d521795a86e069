#pragma once

// Reading a folder of measurements for the planner. Any thread.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "planner/calibration/calibration.hpp"

namespace mayfly::cli {

struct CalibrationFolder {
  planner::Calibration calibration;
  std::vector<std::string> read;     ///< names of the files, sorted
  std::vector<std::string> unknown;  ///< other CSV files, which no model uses
};

/// Reads every table of the folder, in the order of their names. kNotFound if it is not a folder or
/// has no table; kInvalidInput with file, line and column for a damaged one; kIo.
[[nodiscard]] Result<CalibrationFolder> read_calibration(const std::string& folder);

}  // namespace mayfly::cli
