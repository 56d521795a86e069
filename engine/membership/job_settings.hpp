#pragma once

// A worker on another host is told two things, where the coordinator is and the job's token. All
// settings of the job come from the coordinator.

#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// The answer of a coordinator that is asked for the settings of its job, as TOML.
[[nodiscard]] std::string settings_to_tell(const JobConfig& job);

/// Asks the coordinators that `own` names, with the token of `own`, for the settings of their job:
/// the defaults with those in place of them, on which a process puts its own. Waits as long as a
/// worker does for its coordinator, and says what for. kInvalidInput without a token; kRefused with
/// the coordinator's reason; the failure of the last attempt if none answers.
[[nodiscard]] Result<JobConfig> ask_for_job_settings(const JobConfig& own);

/// Tells a coordinator without a data set what this worker's job is like, and returns when it takes
/// workers in. kRefused with the coordinator's reason.
[[nodiscard]] Result<void> tell_facts(const JobConfig& own, const JobFacts& facts);

}  // namespace mayfly::engine
