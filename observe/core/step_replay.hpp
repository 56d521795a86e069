#pragma once

// How long a step would take if something about the workers of a job were different: their steps
// are replayed from the times that their records give. Loading threads read and prepare
// microbatches ahead, computing threads take them in their order or prepare them themselves
// (datasets/loader.hpp), threads of one host share its cores, and all workers wait for the slowest.
// Replay rather than the least of three rates (DS-Analyzer: Mohan et al., PVLDB 14(5), 2021), which
// is too fast where threads compete for cores or buffers are short. Every microbatch of a worker
// takes the same time. Pure; any thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mayfly::observe {

/// What a worker's threads take for a microbatch, and how many there are. Milliseconds.
struct PipelineWorker {
  std::uint64_t member = 0;
  std::string host;
  std::uint32_t microbatches = 0;  ///< its share of a step, at least 1
  std::uint32_t compute_threads = 1;
  std::uint32_t load_threads = 1;
  std::uint32_t ahead = 2;             ///< microbatches that are prepared ahead at most
  bool yields = false;                 ///< loading threads have a low priority
  double compute_ms = 0;               ///< processor time of a computing thread
  double wait_ms = 0;                  ///< then a computing thread waits, as for a device
  double fetch_ms = 0;                 ///< a loading thread waits for files
  double prep_ms = 0;                  ///< processor time of a loading thread
  double bytes = 0;                    ///< of its images where they are stored
  std::optional<double> storage_rate;  ///< bytes per second that all its threads read together;
                                       ///< instead of fetch_ms
};

struct Pipeline {
  std::vector<PipelineWorker> workers;  ///< at least one
  std::map<std::string, double> cores;  ///< of hosts; of the others every thread has its own
  double exchange_ms = 0;               ///< after the slowest worker is ready
  double update_ms = 0;
};

struct ReplayedStep {
  double step_ms = 0;
  std::vector<double> computed_ms;  ///< of a microbatch, by worker: compute_ms, wait_ms and what
                                    ///< the competition for cores adds
};

/// The mean of some steps after the buffers have filled.
[[nodiscard]] ReplayedStep replay(const Pipeline& pipeline);

/// Chooses wait_ms of each worker such that replay() gives these computed_ms, as far as competition
/// for cores leaves room for it. They are by worker.
void calibrate(Pipeline& pipeline, const std::vector<double>& computed_ms);

}  // namespace mayfly::observe
