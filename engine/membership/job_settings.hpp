#pragma once

// A worker on another host is started with only the coordinator's address and the job's token. It
// asks the coordinator for all settings of the job.

#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// The coordinator's answer to a worker that asks for the settings of the job, as TOML.
[[nodiscard]] std::string settings_to_send(const JobConfig& job);

/// Asks the coordinators that `own` names, with the token of `own`, for the settings of their job.
/// Returns the defaults overridden by these settings; the caller then applies its own. Waits as
/// long as a joining worker waits for its coordinator, and logs that it does. kInvalidInput without
/// a token; kRefused with the coordinator's reason; the failure of the last attempt if no
/// coordinator answers.
[[nodiscard]] Result<JobConfig> ask_for_job_settings(const JobConfig& own);

/// Sends the facts of this worker's job to a coordinator without a data set, and returns when the
/// coordinator admits workers. kRefused with the coordinator's reason.
[[nodiscard]] Result<void> tell_facts(const JobConfig& own, const JobFacts& facts);

}  // namespace mayfly::engine
