#pragma once

#include <vector>

namespace mayfly {

/// The value at `fraction` (0 to 1) of the sorted values, the nearest one that was measured. 0 if
/// there are none.
[[nodiscard]] double percentile(std::vector<double> values, double fraction);
/// The middle value, or the mean of the two in the middle. 0 if there are none.
[[nodiscard]] double median(const std::vector<double>& values);

}  // namespace mayfly
