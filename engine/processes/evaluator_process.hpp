#pragma once

#include "engine/config/config.hpp"
#include "engine/membership/worker_join.hpp"

namespace mayfly::engine {

/// Measures the job's checkpoints for the coordinators that `config` names, until they dismiss this
/// process or a signal asks it to leave. Opens the data set first, and computes on the CPU with
/// config.threads threads. Returns the exit code.
[[nodiscard]] int run_evaluator(const JobConfig& config, const LeaveSignals& signals);

}  // namespace mayfly::engine
