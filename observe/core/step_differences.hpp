#pragma once

// What a step's time consists of, from runs of the same job with parts of it left out: the
// differences between cells, of which each has one part more than the one before. The method of
// DS-Analyzer (Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", PVLDB 14(5),
// 2021) and Stash (Sharma et al., ICDCS 2023), with a cell for what workers lose because they share
// a host, and with intervals. Pure; any thread.

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace mayfly::observe {

/// The cells, each with the work of one worker for the same number of samples.
enum class Cell : std::size_t {
  kAlone,     ///< A: one worker, images in memory, no exchange
  kTogether,  ///< B: all workers of the host at the same time, otherwise as A
  kExchange,  ///< C: one job of all of them, images in memory
  kWarm,      ///< D: the same with images that are prepared, from files in the page cache
  kCold,      ///< E: the same with files that are read from storage
};
inline constexpr std::size_t kCells = 5;

/// Milliseconds of a step in each cell, from runs that followed each other.
using CellRound = std::array<double, kCells>;

/// Part of a step.
struct StepDifference {
  const char* kind = "";  ///< compute, contention, interconnect, prep or fetch
  double ms = 0;          ///< mean over the rounds of cell minus the cell before
  // The interval in which it is with the confidence asked for (Student's t of the paired
  // differences). Infinite with one round.
  double low = 0;
  double high = 0;

  /// Above 0 beyond chance. If not, nothing is known but that it is not much.
  [[nodiscard]] bool is_measurable() const { return low > 0; }
};

/// Mean of a cell over the rounds, in milliseconds. There is at least one round.
[[nodiscard]] double mean_of(std::span<const CellRound> rounds, Cell cell);
/// In the order of the cells; together they are the mean of the last one. There is at least one
/// round; `confidence` is between 0 and 1.
[[nodiscard]] std::vector<StepDifference> step_differences(std::span<const CellRound> rounds,
                                                           double confidence = 0.95);

/// What the two tools report for the same cells.
struct OtherTools {
  // Stash: C - A, not below 0, which includes contention; and its share of C.
  double stash_interconnect_ms = 0;
  double stash_interconnect_share = 0;
  // DS-Analyzer, samples per second: G of images in memory, P with preparation, F of reading alone
  // (none if the cold cell is not slower), and the least of them, at which it expects the job.
  double dsa_ingestion = 0;
  double dsa_preparation = 0;
  std::optional<double> dsa_fetch;
  double dsa_speed = 0;
};
[[nodiscard]] OtherTools as_other_tools(std::span<const CellRound> rounds,
                                        std::size_t samples_per_step);

}  // namespace mayfly::observe
