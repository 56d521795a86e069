#pragma once

// `mayfly profile --difference`: runs a job with parts of it left out, and prints the share of each
// part in a step (observe/core/step_differences.hpp). For a process with one thread.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/compare/compare_plan.hpp"
#include "engine/config/config.hpp"
#include "observe/core/step_differences.hpp"

namespace mayfly::engine {

struct DifferenceOptions {
  JobConfig job;  ///< validated; over hosts with the number of workers
  /// If the job's workers are on several hosts: the host for cells with the work of one host, as in
  /// the setting `hosts`. Empty: all workers are on this machine.
  std::string one_host;
  std::string folder;  ///< for the runs; must not exist, or be empty
  std::uint32_t rounds = 5;
  std::uint64_t steps = 70;  ///< of each run; the first ten are not measured
  bool json = false;         ///< print an object instead of a table
};

/// Steps of a run that are not measured.
inline constexpr std::uint64_t kWarmUpSteps = 10;

/// Jobs that run at the same time, and their differences from the requested job.
struct DifferenceCell {
  observe::Cell cell = observe::Cell::kAlone;
  std::uint32_t jobs = 1;  ///< equal ones
  bool is_cold = false;    ///< files of the data set are dropped from the page cache before
  std::vector<SettingValue> settings;
};

/// The cells of a round in the order in which they run. On one host E runs before D, so that D
/// finds the files that E has read in the page cache. kInvalidInput if the work cannot be divided
/// among lone workers, or if the job has settings that this profile does not support. Pure.
[[nodiscard]] Result<std::vector<DifferenceCell>> difference_cells(
    const DifferenceOptions& options);

/// Returns the exit code; complaints go to standard error. For a process with one thread.
int run_difference_profile(const DifferenceOptions& options);

}  // namespace mayfly::engine
