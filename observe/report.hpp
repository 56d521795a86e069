#pragma once

// A report: the page and the numbers of some runs in one HTML file, which opens from a disk without
// a network. Any thread.

#include <string>
#include <vector>

#include "observe/run_follower.hpp"

namespace mayfly::observe {

/// The most buckets of each run's curves in a report; longer runs use a coarser level.
inline constexpr std::size_t kReportBucketsMax = 100'000;

/// The text of the file. `made`: wall-clock seconds, shown on the page. Several runs share
/// kReportBucketsMax.
[[nodiscard]] std::string report_of(const std::vector<RunFollower*>& runs, double made);

}  // namespace mayfly::observe
