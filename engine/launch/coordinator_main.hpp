#pragma once

// The coordinator alone, as a rank of a launcher starts it, too.

#include <optional>

#include "base/lock_file.hpp"
#include "engine/config/config.hpp"
#include "engine/processes/coordinator_process.hpp"
#include "engine/run/run_listener.hpp"

namespace mayfly::engine {

/// `mayfly coordinator`, with a say in what becomes of an unfinished job and whether it may begin
/// without the data. `run_lock`: see CoordinatorProcess::start().
int run_coordinator(const JobConfig& config, RunListener& listener,
                    CoordinatorProcess::Unfinished unfinished, CoordinatorProcess::Facts facts,
                    std::optional<LockFile> run_lock = {});

}  // namespace mayfly::engine
