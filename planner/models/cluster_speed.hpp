#pragma once

// Updates per second of a set of workers that share parameter servers. Pure; any thread.
//
// speed = (S^-q + K^-q)^(-1/q), S = sum of the workers' own speeds, K = the most updates per second
// that the parameter servers can process. K depends on the network and the number of servers, not
// on the workers, and is fitted over all machine types together; q is averaged over, because
// measurements hardly determine it. A further parameter server also shortens the time that each
// worker waits for an answer, by a share of 1/K with one server less 1/K with more; this matters
// most for fast workers. The published model is S alone (CM-DARE, ICDCS 2020, section on cluster
// speed).
//
// Workers of one type that share the microbatches of a step count as effective_workers of
// work_sharing.hpp; their exchange of gradients adds a share x of one worker's step, times (n - 1)
// / n. With several types in a cluster, neither is modelled.

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/calibration/calibration.hpp"
#include "planner/estimate.hpp"
#include "planner/fit.hpp"
#include "planner/models/step_time.hpp"
#include "planner/models/work_sharing.hpp"

namespace mayfly::planner {

inline constexpr const char* kSteady = "steady";
inline constexpr const char* kWholeJob = "whole job";

/// Workers of one machine type.
struct WorkerGroup {
  std::string gpu;
  double workers = 0;
  double further_step_s = 0;  ///< added to each of their steps, for example by a distant server
};

/// A set of workers that trains one network.
struct Cluster {
  std::vector<WorkerGroup> workers;
  Network network;  ///< completed
  int parameter_servers = 0;
  std::string kind = kSteady;  ///< kSteady, or kWholeJob: with start, checkpoints and evaluations
};

/// "2xK80+1xV100" as groups; words behind a space ("2xK80 transient") are ignored. kInvalidInput.
[[nodiscard]] Result<std::vector<WorkerGroup>> parse_cluster(const std::string& text);

/// The updates of a job in training_jobs.csv, and its network, where cluster_speed.csv has the
/// speed of the same cluster over a whole job; nothing without such a pair.
struct JobSize {
  double steps = 0;
  std::string model;
};
[[nodiscard]] std::optional<JobSize> job_size(const Calibration& calibration);

class ClusterSpeeds {
 public:
  ClusterSpeeds(const Calibration& calibration, const StepTimes& step_times,
                const Networks& networks);

  /// Steps per second; 0 without workers. kNotFound if a machine type or the network is in no
  /// table.
  [[nodiscard]] Result<Forecast> speed(const Cluster& cluster) const;

  /// The speed of workers that wait for each other at every step, in updates of one worker per
  /// second. A round takes at least as long as the slowest worker and as the servers need for all
  /// updates, and at most as long as the slowest worker plus the servers' time for the updates of
  /// the others. The median is the geometric mean of these bounds, and the interval contains both.
  /// No such job was measured. kNotFound, also without a known limit of the parameter servers.
  [[nodiscard]] Result<Forecast> synchronous_speed(const Cluster& cluster) const;

 private:
  using Group =
      std::tuple<std::string, std::string, int, std::string>;  // gpu, model, servers, kind
  /// How one worker's speed follows from the parameters.
  struct Single {
    std::vector<std::size_t> logs;  ///< their sum is the logarithm of its speed with one server
    std::optional<std::size_t> one, more;  ///< log K with one server, and with those of the cluster
    std::optional<std::size_t> exchange{};  ///< x of workers that share steps
  };
  struct Observation {
    Group group;
    double workers = 0;
    double log_speed = 0;
    double sd = 0;         ///< of log_speed beyond the common noise
    double effective = 0;  ///< workers by the time that they need for their work
    Single single{};
    std::optional<std::size_t> ceiling{};
  };
  /// One fit with a fixed bend, and a fixed relative error of a measured speed.
  struct Fit {
    double bend = 0;
    double noise = 0;
    double weight = 0;
    Posterior posterior;
  };

  /// A group of workers in a cluster whose speed is predicted.
  struct Part {
    double workers = 0, further_step_s = 0;
    double effective = 0;  ///< of these workers
    Single single;
    double log_outside = 0, outside_sd = 0;  ///< if the fits have no such type and network
  };

  void collect(const Calibration& calibration, const Networks& networks);
  void add_parameters(const StepTimes& step_times, const Networks& networks);
  std::size_t parameter(const std::string& name, Prior prior);
  [[nodiscard]] Single single_of(const Group& group) const;
  /// Seconds per step of one worker.
  [[nodiscard]] double single_step_s(const Single& single, const Numbers& parameters,
                                     double log_outside) const;
  /// Steps per second of workers of one type without a limit of parameter servers.
  [[nodiscard]] double sum_of_workers(const Single& single, const Numbers& parameters,
                                      double workers, double effective, double log_outside,
                                      double further_step_s) const;
  /// How workers of this type share the steps of the network, or of another one if this one was not
  /// measured.
  [[nodiscard]] const WorkSharing* sharing_of(const std::string& gpu,
                                              const std::string& model) const;
  [[nodiscard]] Fit fit_with(double bend, double noise) const;
  void fit_all();
  void fit_ceilings(const Networks& networks);
  [[nodiscard]] Result<std::vector<Part>> parts_of(const Cluster& cluster,
                                                   std::string& because) const;
  [[nodiscard]] Prior ceiling_prior(const Network& network, int servers) const;

  const StepTimes& step_times_;
  std::vector<Observation> observations_;
  std::map<std::pair<std::string, std::string>, WorkSharing> sharings_;  ///< by type and network
  std::map<std::string, std::size_t> index_;  ///< of a parameter, by name
  std::vector<Prior> priors_;
  std::vector<Fit> fits_;
  std::size_t wait_ = 0;  ///< the parameter for the share of 1/K that a worker waits
  Numbers ceiling_;       ///< ms per tensor and per MB of 1000 / K with one server; empty = unknown
  double ceiling_sd_ = 0;
  Numbers second_server_;  ///< log(K with two / K with one) = a + b log(MB); empty = unknown
};

}  // namespace mayfly::planner
