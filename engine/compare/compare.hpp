#pragma once

// `mayfly compare` makes the runs of a ComparePlan, and `mayfly tune-switch` searches the earliest
// switch from bsp that keeps its accuracy: one job after the other, with a report. Finished runs
// are kept, so an interrupted command continues with the missing ones. For a process with one
// thread.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/compare/compare_plan.hpp"

namespace mayfly::engine {

/// Returns the exit code; complaints go to standard error. For a process with one thread.
int run_compare(const CompareOptions& options);

struct TuneSwitchOptions {
  std::string folder;               ///< for all results; finished runs in it are kept
  std::string then = "asp";         ///< the phases after bsp; the last one without a length
  std::string condition = "clean";  ///< see CompareCondition
  double tolerance = 0.01;
  std::uint32_t runs = 5;
  std::uint32_t probes = 5;
  std::uint64_t first_seed = 1;
  std::vector<SettingValue> settings;  ///< of every job
  bool quick = false;                  ///< a small job by default
  bool json = false;                   ///< print the result instead of a table
};

/// Returns the exit code; complaints go to standard error. For a process with one thread.
int run_tune_switch(const TuneSwitchOptions& options);

}  // namespace mayfly::engine
