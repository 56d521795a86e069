#pragma once

// A calibration folder whose true values are known: step times of "plain" networks are 0.05 + 0.1 g
// on A1 and 0.02 + 0.04 g on B2 (g = gflops), half of B2's on C3; parameter servers take 1000 /
// (0.1 tensors + 1.25 MB) updates per second, two of them 1.6 times that, with a bend of 4; a whole
// job has 40000 updates of net-20 at 0.97 of the steady speed. Measurements scatter by 1 %.

#include <string>

#include "planner/calibration/calibration.hpp"

namespace mayfly::planner {

/// The calibration of that folder without the rows of `left_out`, such as "A1,net-10,".
[[nodiscard]] Calibration invented_calibration(const std::string& left_out = {});

}  // namespace mayfly::planner
