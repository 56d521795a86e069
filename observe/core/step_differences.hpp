#pragma once

// The parts of a step's time, from runs of the same job with parts of it left out: differences
// between cells, each of which has one part more than the one before. The method of DS-Analyzer
// (Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", PVLDB 14(5), 2021) and
// Stash (Sharma et al., ICDCS 2023), with a cell for the loss of workers that share a host, and
// with intervals. Pure; any thread.

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace mayfly::observe {

/// The cells, each with the work of one worker for the same number of samples. On one host all but
/// kHosts are run; over several hosts all but kWarm, because this process cannot fill the page
/// caches of other hosts.
enum class Cell : char {
  kAlone = 'A',     ///< one worker, images in memory, no exchange
  kTogether = 'B',  ///< as many workers as the job, at once on one host, otherwise as A
  kExchange = 'C',  ///< one job of all these workers, images in memory
  kWarm = 'D',      ///< as C, with images that are prepared from cached files
  kWhole = 'E',     ///< the job; on one host its files are read from storage
  kHosts = 'N',     ///< as C, over the hosts of the job
};

/// Milliseconds of a step in each cell that was run, from runs that followed each other.
using CellRound = std::map<Cell, double>;

/// Part of a step.
struct StepDifference {
  /// For A, B - A, C - B, D - C and E - D: compute, contention, interconnect, prep, fetch. For
  /// N - C: network. For E - N: data, which is both prep and fetch.
  const char* kind = "";
  double ms = 0;  ///< mean over the rounds of cell minus the cell before
  // The 95 % confidence interval of the mean (Student's t of the paired differences). Infinite with
  // one round.
  double low = 0;
  double high = 0;

  /// Whether the difference is significantly above 0. If not, it is only known to be small.
  [[nodiscard]] bool is_measurable() const { return low > 0; }
};

/// Mean of a cell over the rounds, in milliseconds. There is at least one round, and all rounds
/// have the same cells.
[[nodiscard]] double mean_of(std::span<const CellRound> rounds, Cell cell);
/// The differences in the order of the cells, with intervals of 95 %; they add up to the mean of
/// the last cell, E. There is at least one round, all rounds have the same cells, A among them.
[[nodiscard]] std::vector<StepDifference> step_differences(std::span<const CellRound> rounds);

/// The rates that DS-Analyzer reports, in samples per second: G with images in memory, P with
/// preparation, F of reading alone (none if E is not slower than D), and the least of them, which
/// is its prediction for the job.
struct AnalyzerRates {
  double ingestion = 0;
  double preparation = 0;
  std::optional<double> fetch = {};
  double speed = 0;
};

/// The results of the two tools for the same cells.
struct OtherTools {
  // Stash: C - A, not below 0, which includes contention; and its share of C.
  double stash_interconnect_ms = 0;
  double stash_interconnect_share = 0;
  // Over hosts: N - C, not below 0, and its share of C.
  std::optional<double> stash_network_ms;
  double stash_network_share = 0;
  std::optional<AnalyzerRates> analyzer;  ///< on one host
};
[[nodiscard]] OtherTools as_other_tools(std::span<const CellRound> rounds,
                                        std::size_t samples_per_step);

}  // namespace mayfly::observe
