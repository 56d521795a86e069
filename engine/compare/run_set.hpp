#pragma once

// The runs of a comparison. Each run is a process of `mayfly train`. Its result is read from its
// run directory and kept as a line of results.jsonl. A run that has a result is not repeated, so an
// interrupted comparison continues with the missing runs. For a process with one thread.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "elastic/core/view_log.hpp"
#include "engine/compare/compare_plan.hpp"
#include "engine/run/line_file.hpp"

namespace mayfly::engine {

struct RunResult {
  std::string id;
  std::string variant;
  std::string condition;
  std::uint64_t seed = 0;
  elastic::Outcome outcome = elastic::Outcome::kFailed;
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
  double bytes = 0;                                  ///< transferred between processes
  bool bytes_counted = false;         ///< by the shards; otherwise from all_reduce_bytes()
  std::vector<double> recoveries_ms;  ///< from a loss to the next step
  double worker_seconds = 0;          ///< of all workers, each from its connection to its end
  std::uint64_t redone_samples = 0;   ///< computed again or wasted
  std::uint64_t leased_again = 0;
  std::uint64_t late = 0;
  std::uint64_t at_once = 0;
  std::vector<std::string> stragglers;  ///< the details of the straggler events

  static void fields(auto& io, auto& r) {
    io("id", r.id);
    io("variant", r.variant);
    io("condition", r.condition);
    io("seed", r.seed);
    io("outcome", r.outcome);
    io("detail", r.detail);
    io("steps", r.steps);
    io("samples", r.samples);
    io("train_seconds", r.train_seconds);
    io("images_per_second", r.images_per_second);
    io("test_top1", r.top1);
    io("accuracy", r.accuracy);
    io("loss", r.loss);
    io("staleness", r.staleness);
    io("bytes", r.bytes);
    io("bytes_counted", r.bytes_counted);
    io("recoveries_ms", r.recoveries_ms);
    io("worker_seconds", r.worker_seconds);
    io("redone_samples", r.redone_samples);
    io("leased_again", r.leased_again);
    io("late", r.late);
    io("at_once", r.at_once);
    io("stragglers", r.stragglers);
  }
};

/// Bytes that `members` together send to all-reduce `bytes` bytes: each member sends the parts of
/// its gradients to their owners, and then the sum of its own part to all. Computed, because they
/// are not counted during a run.
[[nodiscard]] double all_reduce_bytes(double bytes, std::uint64_t members);

/// Reads the records of a run that has ended. Sets only the fields that are in these records.
/// kNotFound, kCorrupt.
[[nodiscard]] Result<RunResult> read_run_result(const std::string& run_dir, const WorkSize& size);

[[nodiscard]] std::string to_json(const RunResult& result);
/// kCorrupt.
[[nodiscard]] Result<RunResult> parse_run_result(const std::string& json);

class RunSet {
 public:
  explicit RunSet(std::string folder) : folder_(std::move(folder)) {}

  /// Creates the folder or reads its contents. The file `name` keeps `settings`, which all its runs
  /// share: kInvalidInput names the first line that differs from those of earlier runs. kIo,
  /// kCorrupt.
  [[nodiscard]] Result<void> open(const std::string& name, const std::string& settings);
  /// The result of a run; null if it has not been run.
  [[nodiscard]] const RunResult* find(const std::string& id) const;
  /// Runs the cell and keeps the result, also of a job that failed. kAborted: the user stopped it.
  [[nodiscard]] Result<void> run(const CompareCell& cell);
  /// A file's path in the folder.
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  [[nodiscard]] Result<void> check_settings(const std::string& name,
                                            const std::string& settings) const;
  [[nodiscard]] Result<void> read_results();
  [[nodiscard]] Result<RunResult> start(const CompareCell& cell) const;
  [[nodiscard]] std::string free_run_dir(const std::string& id) const;

  const std::string folder_;
  std::unique_ptr<LineFile> file_;
  std::map<std::string, RunResult> results_;  // by id
};

/// The exit code of a program whose runs could not be completed.
[[nodiscard]] int run_set_exit_code(const Error& error);

}  // namespace mayfly::engine
