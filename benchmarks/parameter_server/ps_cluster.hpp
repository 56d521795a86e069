#pragma once

// Shards and workers of a parameter-server job as threads of this process, without computing, so
// that only the exchange is measured. For benchmarks.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly::bench {

struct PsClusterOptions {
  std::string phases = "asp";
  std::size_t elements = 1;  ///< of the parameters, all shards together
  std::uint32_t workers = 2;
  std::uint32_t shards = 1;
  std::uint64_t steps = 10;  ///< each has as many slices as there are workers
  bool share_memory = true;  ///< see collectives/parameter_server/shared_slots.hpp
};

/// One update of the first shard.
struct TimedUpdate {
  Instant at;
  double cpu_seconds = 0;    ///< of this process so far
  std::uint64_t slices = 0;  ///< slices of the job, including this update
};

struct PsClusterRun {
  std::vector<TimedUpdate> updates;
  double shared = 0;  ///< share of all bytes that were exchanged in shared memory, 0 to 1
};

/// Runs the job to its end. Errors are those of sockets.
[[nodiscard]] Result<PsClusterRun> run_ps_cluster(const PsClusterOptions& options);

/// User and system time of this process so far, in seconds.
[[nodiscard]] double process_cpu_seconds();

}  // namespace mayfly::bench
