#pragma once

// Step times of a family of networks whose operations the host launches while the device computes:
// a step takes as long as the slower of both. Pure; any thread.
//
// time = tensors x max(o, c w (1 + r w)): o is the time to launch the operations on one tensor, w
// the square root of the number of these operations, that is, the width of a layer, c w the time to
// move the tensor's data, and c r w^2 the time to compute with them. r is the same on all machine
// types, and o nearly so, because it depends on the host; each type has its own c.

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

  /// Seconds on a machine type that has a point; `step_s` of the argument is ignored.
  [[nodiscard]] double step_s(const FamilyPoint& of) const;
  /// The uncertainty of step_s() from the fit alone: the standard deviation of its logarithm.
  [[nodiscard]] double log_sd(const FamilyPoint& of) const;

 private:
  [[nodiscard]] double log_step(const Numbers& parameters, const FamilyPoint& of) const;

  std::map<std::string, std::size_t> types_;
  double width_ = 1;  ///< typical w, so that r has no unit
  Posterior posterior_;
};

/// The errors log(predicted / value) of each point when it alone is left out; 0 for the only point
/// of a machine type, because nothing is known of the type without it.
[[nodiscard]] Numbers leave_one_out(const std::vector<FamilyPoint>& points, double noise);

}  // namespace mayfly::planner
