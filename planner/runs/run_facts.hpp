#pragma once

// The facts about a job's speeds, losses and prices in its run directory, for a calibration. Pure.
// Times in seconds; sizes in MB (1e6 bytes); money in the currency of the job's prices.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace mayfly::planner {

/// The least number of steps whose mean counts as a speed.
inline constexpr std::size_t kStepsOfSpeed = 5;

/// A step that nothing disturbed: neither a change of membership nor an evaluation or a checkpoint.
struct RunStep {
  double seconds = 0;
  int members = 0;  ///< that computed it
};

/// A worker, or the server that it ran on.
struct RunWorker {
  std::string machine;    ///< its type
  std::string zone;       ///< empty = unknown
  double from_s = 0;      ///< when it joined, on the run's time axis
  double lifetime_s = 0;  ///< until its end or that of the run
  bool is_lost = false;   ///< otherwise the end is only a lower bound of the lifetime
  bool is_first = false;  ///< it was a member when the job began to train
  std::string offer{};    ///< of its server; empty = no provider started it
};

/// A server from its request to its worker's connection.
struct RunStart {
  std::string machine, market;
  double provision_s = 0, booting_s = 0;
};

struct RunPrice {
  std::string machine, market;
  double per_hour = 0;
};

struct RunFacts {
  std::string name;        ///< as the user calls it
  std::string date;        ///< of its begin: YYYY-MM-DD, UTC
  double hour_of_day = 0;  ///< of its begin, UTC
  std::string model, family;
  double gflops = 0;  ///< operations of a step, 1e9; comparable within a family
  double params = 0, tensors = 0;
  /// Other settings that affect the time of a step, in words: runs of one model that differ in them
  /// are not comparable.
  std::string settings;
  double global_batch = 0;        ///< samples of a step
  double microbatches = 0;        ///< of a step
  std::optional<double> threads;  ///< of a worker that compute, if known
  double cores = 0;               ///< that all workers share; 0 = each has its own, or unknown
  double worker_cores = 0;        ///< that a worker may use; 0 = unknown, or they differ
  std::string machine;            ///< type of all workers; empty if they differ
  std::vector<RunStep> steps;
  bool has_provider = false;  ///< its workers ran on servers of one, with a least time to pay
  std::vector<RunWorker> workers;
  std::vector<RunStart> starts;
  std::vector<double> joins_s;  ///< from a worker's connection until it could compute
  std::vector<RunPrice> prices;
  std::vector<double> recoveries_s;           ///< after a loss until the others computed again
  std::vector<double> checkpoints_s;          ///< for which a checkpoint stopped the work
  std::optional<double> weights_mb, meta_mb;  ///< of a checkpoint
  std::vector<std::string> remarks;  ///< facts that its reader could not find, a sentence each
};

/// The course of a run.
struct RunCourse {
  /// Consecutive steps that the same number of members committed.
  struct Stretch {
    int members = 0;
    double steps = 0;
  };
  std::vector<Stretch> stretches;  ///< in order
  double start_s = 0;              ///< from the run's begin until its first step began
  double total_s = 0;              ///< from the run's begin until its last step was committed
  double evaluations_s = 0;        ///< between steps
  bool was_resumed = false;        ///< it consists of parts with time between them
  double not_running_s = 0;        ///< the time between these parts
  std::optional<double> cost;      ///< until the end of the run, if its workers have prices
};

}  // namespace mayfly::planner
