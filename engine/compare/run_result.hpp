#pragma once

// What one run of a comparison came to, read from its run directory, and as a line of
// results.jsonl.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace mayfly::engine {

struct RunResult {
  std::string id;
  std::string variant;
  std::string condition;
  std::uint64_t seed = 0;
  std::string outcome;  ///< as in summary.json
  std::string detail;
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  double train_seconds = 0;
  double images_per_second = 0;
  double top1 = -1;  ///< 0 to 1; below 0 = not measured
  /// Seconds since the first view, and test accuracy; training loss likewise.
  std::vector<std::pair<double, double>> accuracy;
  std::vector<std::pair<double, double>> loss;
  std::map<std::uint64_t, std::uint64_t> staleness;  ///< of all shards
  double bytes = 0;                                  ///< moved between processes
  bool bytes_counted = false;                        ///< by the shards; else computed, see below
  std::vector<double> recoveries_ms;                 ///< from a loss to the next step
  std::uint64_t reissued = 0;
  std::uint64_t late = 0;
  std::uint64_t at_once = 0;
  std::vector<std::string> stragglers;  ///< what was said of them
};

/// What a shard says of itself at the end (the detail of a shard_done event).
struct ShardAccount {
  std::map<std::string, std::uint64_t> numbers;  ///< by their words: "late", "bytes in"
  std::map<std::uint64_t, std::uint64_t> staleness;
};
/// kCorrupt if it is none.
[[nodiscard]] Result<ShardAccount> parse_shard_account(const std::string& text);

/// Bytes that `members` together send to all-reduce so many numbers of 4 bytes: each sends its part
/// to the others and then the result. Computed, because nobody counts them.
[[nodiscard]] double all_reduce_bytes(double numbers, std::uint64_t members);

/// Reads the records of a run that has ended; only the fields that the run itself knows. kNotFound,
/// kCorrupt.
[[nodiscard]] Result<RunResult> read_run_result(const std::string& run_dir);

[[nodiscard]] std::string to_json(const RunResult& result);
/// kCorrupt.
[[nodiscard]] Result<RunResult> parse_run_result(const std::string& json);

}  // namespace mayfly::engine
