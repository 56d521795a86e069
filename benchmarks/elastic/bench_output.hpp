#pragma once

// How the benchmarks of elasticity print their measurements.

#include <string>
#include <vector>

#include "benchmarks/elastic/elastic_bench.hpp"
#include "benchmarks/elastic/event_report.hpp"

namespace mayfly::bench {

/// A run directory for a job without one of its own; removed at the end.
class ScratchRun {
 public:
  explicit ScratchRun(engine::JobConfig& job);
  ~ScratchRun();
  ScratchRun(const ScratchRun&) = delete;
  ScratchRun& operator=(const ScratchRun&) = delete;

 private:
  std::string folder_;  // empty = the job has its own
};

/// The job's part of a summary: workers, model, threads, backend, resident memory.
[[nodiscard]] JsonFields job_facts(const ElasticBenchOptions& options);

/// Prints the machine, the events and their percentiles: as JSON lines, or as a table under
/// `title`.
void print_events(const ElasticBenchOptions& options, const std::string& title,
                  const JsonFields& facts, const std::vector<EventSeries>& series);

/// Reports that the job ended too early; returns the exit code.
[[nodiscard]] int ended_early(std::size_t done, std::uint32_t wanted, int code);

/// The time of one microbatch on one thread of the otherwise idle machine, in milliseconds, from a
/// short job with one worker. 0 if the job fails.
[[nodiscard]] double measure_microbatch_ms(const engine::JobConfig& job);

}  // namespace mayfly::bench
