#pragma once

// The output of `mayfly bench allreduce`. Pure.

#include <cstdint>
#include <string>
#include <vector>

namespace mayfly::bench {

/// One measurement: some all-reduces of one contestant in one round.
struct AllReduceRound {
  std::uint32_t ranks = 0;
  std::size_t bytes = 0;
  std::string contestant;
  bool is_peer = false;
  std::uint32_t round = 0;
  std::uint32_t iterations = 0;
  double median_seconds = 0;  ///< over the iterations, each the slowest rank's time
  double min_seconds = 0;
};

/// One line of the table: a contestant with a size and a number of ranks.
struct AllReduceRow {
  std::uint32_t ranks = 0;
  std::size_t bytes = 0;
  std::string contestant;
  bool is_peer = false;
  std::uint32_t rounds = 0;
  double seconds = 0;      ///< median of the rounds' medians
  double low_seconds = 0;  ///< 10th and 90th percentile of the rounds' medians
  double high_seconds = 0;
  double min_seconds = 0;
  std::string best_peer;          ///< the fastest peer at this size and number; empty if none ran
  double ratio_to_best_peer = 0;  ///< own time by that peer's: below 1 is faster; 0 if none ran
};

/// Bytes of the vector by time, in 10^9 bytes per second.
[[nodiscard]] double algorithm_bandwidth(const AllReduceRow& row);
/// The load of the busiest link: algorithm bandwidth times 2 (n - 1) / n, as nccl-tests defines it.
[[nodiscard]] double bus_bandwidth(const AllReduceRow& row);

/// One row per contestant, size and number of ranks, in the order of first appearance.
[[nodiscard]] std::vector<AllReduceRow> rows_of(const std::vector<AllReduceRound>& rounds);

/// JSON objects of kind "round" and "row"; `type` is the element type's name.
[[nodiscard]] std::string to_json(const AllReduceRound& round, const std::string& type);
[[nodiscard]] std::string to_json(const AllReduceRow& row, const std::string& type);

/// The rows as a table, grouped by ranks and size.
[[nodiscard]] std::string to_table(const std::vector<AllReduceRow>& rows);

/// "64K", "25M" or "100": bytes with 1024 or 1024^2 as unit where it is a whole number of them.
[[nodiscard]] std::string size_text(std::size_t bytes);

}  // namespace mayfly::bench
