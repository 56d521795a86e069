#pragma once

// Step times of a family of networks whose operations the host launches while the device computes:
// a step takes as long as the slower of both. Pure; any thread.
//
// time = tensors x max(o, c w (1 + r w)): o is the time to launch what belongs to one tensor, w the
// square root of the operations of one tensor, that is the width of a layer, c w the time to move
// its data and c r w^2 that to compute with them. r is the same on all machine types, o is nearly
// so, as it is the host's, and c is that of a type.

#include <map>
#include <string>
#include <vector>

#include "planner/fit.hpp"

namespace mayfly::planner {

struct FamilyPoint {
  std::string gpu;
  double gflops = 0;  ///< above 0, as the others
  double tensors = 0;
  double step_s = 0;
};

class OverlappedSteps {
 public:
  /// `noise`: the standard deviation of the logarithm of a measured time. At least one point.
  OverlappedSteps(const std::vector<FamilyPoint>& points, double noise);

  /// Seconds on a type that has a point; `step_s` of the argument does not count.
  [[nodiscard]] double step_s(const FamilyPoint& of) const;
  /// How far that is uncertain by the fit alone: the standard deviation of its logarithm.
  [[nodiscard]] double log_sd(const FamilyPoint& of) const;

 private:
  [[nodiscard]] double log_step(const Numbers& parameters, const FamilyPoint& of) const;

  std::map<std::string, std::size_t> types_;
  double width_ = 1;  ///< typical w, so that r has no unit
  Posterior posterior_;
};

/// The errors log(predicted / value) of each point when it alone is left out; 0 for the only point
/// of a machine type, of which nothing is known then.
[[nodiscard]] Numbers leave_one_out(const std::vector<FamilyPoint>& points, double noise);

}  // namespace mayfly::planner
