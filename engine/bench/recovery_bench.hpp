#pragma once

#include <cstdint>
#include <string>

#include "engine/config.hpp"

namespace mayfly::engine {

struct RecoveryBenchOptions {
  JobConfig job;  ///< workers, model, data, backend
  std::uint32_t kills = 30;
  bool json = false;  ///< one JSON object per kill and one with the percentiles
};

/// `mayfly bench recovery`: trains with local workers, sends SIGKILL to a random one at a random
/// moment, waits for the survivors' next committed step, starts a replacement, and again. Prints,
/// in milliseconds since the kill: detected, told, stopped (groups aborted), formed, synced, step;
/// and the time of an undisturbed step beside them. Returns an exit code.
int bench_recovery(const RecoveryBenchOptions& options);

}  // namespace mayfly::engine
