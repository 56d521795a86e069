#pragma once

// `mayfly compare`: runs what a ComparePlan says, one job after the other, and reports. Finished
// runs are kept, so an interrupted comparison goes on where it was.

#include "engine/compare/compare_plan.hpp"

namespace mayfly::engine {

/// Returns the exit code; complaints go to standard error. For a process with one thread.
int run_compare(const CompareOptions& options);

}  // namespace mayfly::engine
