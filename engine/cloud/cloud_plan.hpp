#pragma once

// What the servers of a job are to be, before any is requested: the policy's options, and the dry
// run that shows its first requests. Starts nothing.

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/core/replacement_options.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// Names an environment variable with which tests shorten two times of jobs whose provider lists a
/// server as soon as it is there: the whole seconds between two lists, and until a server that is
/// missing in them is gone. Otherwise most of such a test would be the wait at its end.
inline constexpr const char* kListSecondsVariable = "MAYFLY_TEST_LIST_SECONDS";

/// The policy's options, from the settings and from what an earlier process of this job has stored
/// in RUN_DIR/cloud.json. kInvalidInput if settings do not fit together.
[[nodiscard]] Result<cloud_hooks::ReplacementOptions> replacement_options(
    const JobConfig& config, const cloud_hooks::Capabilities& provider);

/// --cloud-dry-run: prints the first requests that the job would make; returns the exit code.
int show_cloud_plan(const JobConfig& config);

}  // namespace mayfly::engine
