#pragma once

// The benchmarks of elasticity: each runs a real job with local workers, causes the same kind of
// event again and again, and prints its cost. docs/benchmarks.md defines every figure. All return
// an exit code.

#include <cstdint>
#include <string>

#include "engine/config/config.hpp"

namespace mayfly::bench {

struct ElasticBenchOptions {
  engine::JobConfig job;  ///< workers, model, data, backend; never ends by itself
  std::uint32_t events = 30;
  std::string fault = "kill";    ///< kill, stop, vanish (recovery) or hang (detect)
  bool own_core = false;         ///< join: the new worker has the last core, the others the rest
  bool json = false;             ///< one JSON object per event and one with the percentiles
  double minutes = 0;            ///< detect, goodput: duration; 0 = without a limit
  std::uint64_t hang_step = 30;  ///< detect: the step in which a worker hangs
  double oversubscribe = 0;      ///< detect: busy threads per core, without any fault
  std::string trace;             ///< goodput: a file with a spot trace
  double speedup = 60;           ///< goodput: trace seconds per second
  std::uint32_t nodes_max = 6;   ///< goodput: the trace is scaled to at most so many workers
  double kill_every = 0;         ///< goodput: seconds between kills instead of a trace
};

/// A worker is lost: measures the time to the next committed step.
int bench_recovery(const ElasticBenchOptions& options);
/// A worker is added: measures the cost for the other workers.
int bench_join(const ElasticBenchOptions& options);
/// A worker is asked to leave.
int bench_drain(const ElasticBenchOptions& options);
/// How soon faults are detected, and whether anything else is taken for a fault.
int bench_detect(const ElasticBenchOptions& options);
/// Compares the steps of a job on a spot market with those of an ideal job.
int bench_goodput(const ElasticBenchOptions& options);

}  // namespace mayfly::bench
