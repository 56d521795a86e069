#pragma once

// How workers of one machine type share the steps of an all-reduce job: whole microbatches, each
// computed by one thread, perhaps on cores that the workers share. Pure; any thread.

#include <algorithm>
#include <cmath>

namespace mayfly::planner {

struct WorkSharing {
  double microbatches = 0;  ///< of a step; at least 1
  double threads = 0;       ///< of a worker that compute; at least 1
  double cores = 0;         ///< that all workers together have; 0 = every thread has its own
};

/// The duration of a step in units of the time of one microbatch on a core of its own: the largest
/// share of a worker divided by its threads, or all microbatches divided by the cores if threads
/// take turns on them.
[[nodiscard]] inline double rounds_of_step(const WorkSharing& sharing, double workers) {
  const double own = std::ceil(std::ceil(sharing.microbatches / workers) / sharing.threads);
  const double shared = sharing.cores > 0 ? sharing.microbatches / sharing.cores : 0;
  return std::max(own, shared);
}

/// How many times as fast as one worker `workers` workers are, apart from their exchange of
/// gradients. Needs more than 0 workers; a fraction of a worker takes over a fraction of a worker's
/// share.
[[nodiscard]] inline double effective_workers(const WorkSharing& sharing, double workers) {
  return workers <= 1 ? workers : rounds_of_step(sharing, 1) / rounds_of_step(sharing, workers);
}

}  // namespace mayfly::planner
