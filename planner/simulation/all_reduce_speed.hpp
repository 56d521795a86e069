#pragma once

// Speed of Mayfly's own all-reduce jobs: a step is a fixed number of microbatches, each computed by
// one thread as a whole. They are distributed so that the slowest worker is as fast as possible.
// The part of the exchange of gradients that is not hidden behind the computation is added. Pure;
// any thread.

#include <span>
#include <vector>

#include "planner/simulation/market.hpp"

namespace mayfly::planner {

struct WorkerSpeed {
  double images_per_s = 0;    ///< of one worker alone, above 0
  std::uint32_t threads = 1;  ///< compute threads, each with a microbatch at a time
};

struct AllReduceJob {
  std::uint32_t microbatches = 8;  ///< per step
  std::uint32_t microbatch = 16;   ///< images
  std::vector<WorkerSpeed> machines;
  /// Unhidden part of the exchange of a step with very many workers, in seconds; with n workers
  /// (n - 1) / n of it, as each sends and receives 2 (n - 1) / n of the gradients (Patarasuk and
  /// Yuan, Journal of Parallel and Distributed Computing 69 (2009), page 117).
  double exchange_s = 0;
};

/// Seconds for which the workers compute one step. Needs at least one worker.
[[nodiscard]] double compute_seconds(const AllReduceJob& job,
                                     std::span<const std::uint32_t> workers_of_machine);
/// The speed in images per second; 0 without workers.
[[nodiscard]] ClusterSpeed all_reduce_speed(AllReduceJob job);

/// Measured speed of workers of one machine together.
struct MeasuredSpeed {
  std::uint32_t workers = 1;
  double images_per_s = 0;
};
/// The exchange_s with the best fit to measurements of two or more workers of machine 0; 0 without
/// any.
[[nodiscard]] double fitted_exchange(const AllReduceJob& job,
                                     const std::vector<MeasuredSpeed>& measured);

}  // namespace mayfly::planner
