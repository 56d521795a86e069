#pragma once

#include <vector>

namespace mayfly {

/// The value at `fraction` (0 to 1) of the sorted values, the nearest one that was measured. 0 if
/// there are none.
[[nodiscard]] double percentile(std::vector<double> values, double fraction);
/// 0 if there are none.
[[nodiscard]] double mean_of(const std::vector<double>& values);
/// The standard deviation of a sample; 0 for fewer than two values.
[[nodiscard]] double deviation_of(const std::vector<double>& values);
/// The middle value, or the mean of the two in the middle. 0 if there are none.
[[nodiscard]] double median(const std::vector<double>& values);

}  // namespace mayfly
