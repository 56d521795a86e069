#pragma once

// The results of a comparison as a table and as a page with charts. Pure; any thread.

#include <string>
#include <vector>

#include "engine/compare/run_set.hpp"

namespace mayfly::engine {

/// The mean of some measurements, their spread and how many there were.
struct Spread {
  double mean = 0;
  double deviation = 0;  ///< of a sample; 0 for one
  double least = 0;
  double most = 0;
  std::size_t count = 0;
};
[[nodiscard]] Spread spread_of(const std::vector<double>& values);

/// All seeds of one variant under one condition.
struct CompareRow {
  std::string variant;
  std::string condition;
  std::size_t runs = 0;
  std::size_t failed = 0;  ///< of them; only in `runs`
  Spread seconds;
  Spread images_per_second;
  Spread top1;
  double staleness = 0;  ///< mean over updates that have one
  double megabytes = 0;  ///< mean over runs
  bool bytes_counted = false;
  Spread redone;  ///< samples computed again, or in vain
  Spread worker_hours;
  std::size_t recoveries = 0;
  double recovery_ms = 0;  ///< median
};

/// In the order of the names, without those that have no run.
[[nodiscard]] std::vector<CompareRow> compare_rows(const std::vector<RunResult>& results,
                                                   const std::vector<std::string>& variants,
                                                   const std::vector<std::string>& conditions);

/// For a terminal. With prices, also what a run cost at each.
[[nodiscard]] std::string compare_table(const std::vector<CompareRow>& rows,
                                        const WorkerPrices& prices);

/// report.html: the command and the table, and as charts test accuracy, loss and staleness for each
/// condition, then images per second, bytes and recoveries.
[[nodiscard]] std::string compare_page(const std::vector<RunResult>& results,
                                       const std::vector<std::string>& variants,
                                       const std::vector<std::string>& conditions,
                                       const WorkerPrices& prices, const std::string& command);

}  // namespace mayfly::engine
