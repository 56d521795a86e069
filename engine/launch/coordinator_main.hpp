#pragma once

// Runs only a coordinator in this process; also used by rank 0 under a launcher.

#include <optional>

#include "base/lock_file.hpp"
#include "engine/config/config.hpp"
#include "engine/processes/coordinator_process.hpp"
#include "engine/run/run_listener.hpp"

namespace mayfly::engine {

/// `mayfly coordinator`, where the caller decides how to treat an unfinished job and whether the
/// job may begin without the data. `run_lock`: see CoordinatorProcess::start().
int run_coordinator(const JobConfig& config, RunListener& listener,
                    CoordinatorProcess::Unfinished unfinished, CoordinatorProcess::Facts facts,
                    std::optional<LockFile> run_lock = {});

}  // namespace mayfly::engine
