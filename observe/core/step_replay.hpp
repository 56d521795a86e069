#pragma once

// Predicts how long a step would take with other properties of a job's workers, by a replay of its
// steps with the recorded times. Loading threads read and prepare microbatches ahead, computing
// threads take them in their order or prepare them themselves (datasets/loader.hpp), threads of one
// host share its cores, and all workers wait for the slowest. A replay is more accurate than the
// least of three rates (DS-Analyzer: Mohan et al., PVLDB 14(5), 2021), which is too high if threads
// compete for cores or buffers are short. Every microbatch of a worker takes the same time. Pure;
// any thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mayfly::observe {

/// The times that a worker's threads need for a microbatch, in milliseconds, and their numbers.
struct PipelineWorker {
  std::uint64_t member = 0;
  std::string host;
  std::uint32_t microbatches = 0;  ///< its share of a step, at least 1
  std::uint32_t compute_threads = 1;
  std::uint32_t load_threads = 1;
  std::uint32_t ahead = 2;             ///< most microbatches that are prepared ahead
  bool yields = false;                 ///< loading threads have a low priority
  double compute_ms = 0;               ///< processor time of a computing thread
  double wait_ms = 0;                  ///< a computing thread waits afterwards, as for a device
  double fetch_ms = 0;                 ///< a loading thread waits for files
  double prep_ms = 0;                  ///< processor time of a loading thread
  double bytes = 0;                    ///< stored size of its images
  std::optional<double> storage_rate;  ///< bytes per second that all its threads read together;
                                       ///< instead of fetch_ms
};

struct Pipeline {
  std::vector<PipelineWorker> workers;  ///< at least one
  std::map<std::string, double> cores;  ///< of hosts; on others every thread has a core of its own
  double exchange_ms = 0;               ///< after the slowest worker is ready
  double update_ms = 0;
};

struct ReplayedStep {
  double step_ms = 0;
  std::vector<double> computed_ms;  ///< of a microbatch, by worker: compute_ms, wait_ms and the
                                    ///< time lost by competition for cores
};

/// The mean of some steps after the buffers have filled.
[[nodiscard]] ReplayedStep replay(const Pipeline& pipeline);

/// Chooses wait_ms of each worker so that replay() gives these computed_ms, one for each worker, as
/// far as the competition for cores permits.
void calibrate(Pipeline& pipeline, const std::vector<double>& computed_ms);

}  // namespace mayfly::observe
