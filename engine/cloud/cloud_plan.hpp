#pragma once

// The plan for the servers of a job before any is requested: the policy's options, and the dry run
// that shows its first requests. Starts nothing.

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/core/replacement_options.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// An environment variable with which tests shorten two times of jobs whose provider lists a server
/// as soon as it exists: the interval between two lists, in whole seconds, and the time after which
/// a server that is missing in them counts as gone. Otherwise such a test would mostly wait at its
/// end.
inline constexpr const char* kListSecondsVariable = "MAYFLY_TEST_LIST_SECONDS";

/// The policy's options, from the settings and from the facts that an earlier process of this job
/// stored in RUN_DIR/cloud.json. kInvalidInput if settings do not fit together.
[[nodiscard]] Result<cloud_hooks::ReplacementOptions> replacement_options(
    const JobConfig& config, const cloud_hooks::Capabilities& provider);

/// --cloud-dry-run: prints the first requests that the job would make; returns the exit code.
int show_cloud_plan(const JobConfig& config);

}  // namespace mayfly::engine
