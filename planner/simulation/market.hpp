#pragma once

// The input of a simulation: the offers of a market with their distributions, the job, and a
// candidate, that is, one way to run the job on some of the offers. Plain values, which may come
// from fitted models, invented truths or traces. Times in seconds, money in the currency of the
// prices, work in any unit, and speed in that unit per second. Pure.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cloud_hooks/core/provider.hpp"
#include "planner/distributions.hpp"
#include "planner/simulation/shocks.hpp"

namespace mayfly::planner {

struct OfferModel {
  cloud_hooks::Offer offer;
  double price_per_hour = 0;
  std::uint32_t workers_most = 0;      ///< servers at once; 0 = no limit
  std::size_t machine = 0;             ///< machine type, for the speed; below Market::machines
  std::size_t zone = 0;                ///< of Market::zones
  LifetimeTable lifetime;              ///< from running
  QuantileTable start_up;              ///< from request to running
  QuantileTable join;                  ///< from running to its first useful step
  double refused = 0;                  ///< chance that a request finds no capacity, below 1
  QuantileTable stock_out;             ///< time without capacity after a refused request
  std::optional<HourFactors> by_hour;  ///< factors on the hazard
  /// The uncertainty of its hazard: standard deviation of the logarithm, which is drawn once for
  /// each path.
  double hazard_log_sd = 0;
};

[[nodiscard]] inline bool is_spot(const OfferModel& model) {
  return model.offer.market == cloud_hooks::Market::kSpot;
}

struct ZoneModel {
  std::string name;
  ShockModel shocks;
};

/// Work per second of a set of workers, given as their number by machine. Must give the same value
/// for the same numbers.
using ClusterSpeed = std::function<double(std::span<const std::uint32_t> workers_of_machine)>;

struct Market {
  std::vector<OfferModel> offers;
  std::vector<ZoneModel> zones;
  std::size_t machines = 1;
};

/// How servers are billed: by default from the request and for a minute at least, as Mayfly counts
/// (cloud_hooks/core/bill); with `from_running` from the time at which they run, as some providers
/// do.
struct Billing {
  bool from_running = false;
  double least_s = 60;
};

/// One way in which a job's workers exchange their updates through parameter servers.
struct ParameterServing {
  std::string words;  ///< for the user: policy, servers, and what was not measured
  std::uint32_t servers = 1;
  bool is_synchronous = false;
  ClusterSpeed speed;
  double speed_log_sd = 0;
  double cost_per_hour = 0;  ///< of all these servers
};

struct JobModel {
  double work = 0;
  ClusterSpeed speed;
  /// The uncertainty of the speed: standard deviation of its logarithm, which is drawn once for
  /// each path.
  double speed_log_sd = 0;
  double start_up_log_sd = 0;      ///< the same for start-up times
  double recovery_s = 0;           ///< for which all workers wait after a loss
  double join_stop_s = 0;          ///< for which all workers wait when a worker joins
  double checkpoint_s = 0;         ///< for which a checkpoint stops the work
  double restore_s = 0;            ///< from the first worker after a loss of all to its first step
  double first_wait_s = 600;       ///< the most time that the first step waits for all workers
  double clock_s = 0;              ///< of the job's begin, in seconds since a midnight
  double other_cost_per_hour = 0;  ///< of parameter servers, evaluators, storage
  double server_lifetime_s = 0;    ///< after which Mayfly gives a server up; 0 = never
  std::optional<double> deadline_s;       ///< for falling back to on demand
  std::optional<double> budget;           ///< of all servers; the policy stops the job to keep it
  std::optional<double> budget_per_hour;  ///< for all servers together
  Billing billing;
  /// Ways to use parameter servers from which candidates choose, each with its own speed and cost.
  /// Empty: the speed and cost above hold.
  std::vector<ParameterServing> servings;
};

struct Candidate {
  std::vector<std::size_t> offers;  ///< of Market::offers; at least one
  std::uint32_t workers = 1;        ///< that compute
  std::uint32_t spares = 0;         ///< further servers that wait for a place
  std::uint32_t on_demand_floor = 0;
  /// Workers on each of `offers`; empty = on the best ones. With a composition there is no floor.
  /// Another number of servers is divided in proportion, as in cloud_hooks/core/offer_catalog.
  std::vector<std::uint32_t> composition{};
  double checkpoint_every_s = 0;  ///< 0 = none
  /// Once the rest of the work at the speed of on-demand servers takes as long as the rest of the
  /// time until the deadline, lost servers are replaced on demand.
  bool falls_back = false;
  std::size_t serving = 0;    ///< of JobModel::servings, if there are some
  std::string serving_words;  ///< the words of that serving

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

/// The job with the speed and cost of the candidate's parameter servers.
[[nodiscard]] JobModel served(const JobModel& job, const Candidate& candidate);

/// The result of one path of a job.
struct PathOutcome {
  double finish_s = kNever;  ///< from the first request; kNever if the horizon came first
  double cost = 0;           ///< of all servers until then
  bool stopped_by_budget = false;
  std::uint32_t losses = 0;    ///< servers taken while they worked
  std::uint32_t all_lost = 0;  ///< moments at which no worker was left
  std::uint32_t refusals = 0;
  // Where time was lost, in seconds of the whole cluster.
  double starting_s = 0;   ///< until all workers had joined for the first time
  double missing_s = 0;    ///< by workers that were lost and not yet replaced
  double stock_out_s = 0;  ///< by workers whose requests found no capacity
  double stopped_s = 0;    ///< in recoveries, joins and checkpoints
  double redone_s = 0;     ///< work since the last checkpoint, lost with all workers

  friend bool operator==(const PathOutcome&, const PathOutcome&) = default;
};

}  // namespace mayfly::planner
