#pragma once

// The results of a comparison as a table and as a page with charts. Pure; any thread.

#include <string>
#include <vector>

#include "engine/compare/run_set.hpp"

namespace mayfly::engine {

/// The mean, spread and number of some measurements.
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
  std::size_t failed = 0;  ///< counted in `runs` only
  Spread seconds;
  Spread images_per_second;
  Spread top1;
  double staleness = 0;  ///< mean over updates that have one
  double megabytes = 0;  ///< mean over runs
  bool bytes_counted = false;
  Spread redone;  ///< samples computed again or wasted
  Spread worker_hours;
  std::size_t recoveries = 0;
  double recovery_ms = 0;  ///< median
};

/// The rows in the order of the names, without rows that have no run.
[[nodiscard]] std::vector<CompareRow> compare_rows(const std::vector<RunResult>& results,
                                                   const std::vector<std::string>& variants,
                                                   const std::vector<std::string>& conditions);

/// The table for a terminal. With prices it contains the cost of a run at each price.
[[nodiscard]] std::string compare_table(const std::vector<CompareRow>& rows,
                                        const WorkerPrices& prices);

/// report.html: the command and the table, and as charts test accuracy, loss and staleness for each
/// condition, then images per second, bytes and recoveries.
[[nodiscard]] std::string compare_page(const std::vector<RunResult>& results,
                                       const std::vector<std::string>& variants,
                                       const std::vector<std::string>& conditions,
                                       const WorkerPrices& prices, const std::string& command);

}  // namespace mayfly::engine
