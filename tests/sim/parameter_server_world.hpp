#pragma once

// A job with parameter servers in simulated time. The machines (leases, order of updates, a
// worker's flow) are the product's. Connections deliver messages in order but with any delay.
// Workers die, join and lose connections; servers die or are declared lost by mistake. Each shard
// has one number instead of parameters. Every change of it depends on all earlier changes, so two
// runs that end with the same numbers did the same arithmetic.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "collectives/parameter_server/core/worker_flow.hpp"
#include "elastic/core/view_log.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/parameter_server_replica.hpp"

namespace mayfly::sim {

/// From a moment on, the link between a worker's host and a shard's first leader loses everything
/// in one direction or both. In either case no new connection can be made.
struct PsCut {
  std::uint32_t worker = 0;  ///< its number
  std::uint32_t shard = 0;
  Duration from{};
  bool up = true;  ///< from the worker to the shard
  bool down = true;
};

struct PsOptions {
  std::uint64_t seed = 1;
  std::string phases = "bsp";
  std::uint32_t steps = 20;
  std::uint32_t slices_per_step = 4;
  std::uint32_t workers = 4;
  std::uint32_t shards = 1;
  std::set<std::uint64_t> snapshot_steps;
  std::set<std::uint64_t> rest_steps;        ///< steps after which a phase is divided
  bool falls_back = false;                   ///< if training diverges
  std::uint64_t diverges_from = UINT64_MAX;  ///< slices of phases without rounds have a high loss
  std::uint64_t calm_from = UINT64_MAX;      ///< slices from this one on have a usual loss again
  double jitter = 0.5;                       ///< relative, of the 1000 us that a slice takes
  std::map<std::uint32_t, double> slow;      ///< worker number to factor
  std::uint32_t kills = 0;                   ///< at random moments; the last worker is spared
  std::uint32_t joins = 0;                   ///< at random moments
  std::uint32_t breaks = 0;                  ///< of connections
  std::uint32_t holds = 0;                   ///< of 20 ms
  /// The worker is evicted when the cut is noticed, joins again, is evicted again, and so on.
  std::vector<PsCut> cuts;
  Duration cut_noticed = milliseconds(100);
  Duration cut_joins_after = milliseconds(20);
  parameter_server::StragglerPolicy stragglers = parameter_server::StragglerPolicy::kNone;
  std::uint64_t slow_from = 0;         ///< `slow` applies to slices from this one on,
  std::uint64_t slow_to = UINT64_MAX;  ///< and before this one
  bool followers = false;              ///< each shard is a server, with a follower on the next one
  std::uint32_t server_kills = 0;      ///< at random moments
  std::uint32_t zombies = 0;           ///< servers that are declared lost and go on
  bool colocated = false;              ///< worker i runs server i: they are lost together
  Duration faults_within = milliseconds(20);
  PsSabotage sabotage = PsSabotage::kNone;

  /// The product's coordinator and members decide about views, and all workers become idle for each
  /// planned change. Otherwise the simulation makes the views, and only `holds` make workers idle.
  bool coordinated = false;
  // Then only:
  Duration stop_timeout = seconds(10);                   ///< of the coordinator
  std::uint32_t pauses = 0;                              ///< at random moments, for up to 8 ms
  std::vector<std::pair<Duration, Duration>> pauses_at;  ///< when, and how long
  std::uint32_t drains = 0;                              ///< workers that are told to leave
  std::optional<Duration> stop_at;                       ///< the job is stopped with a checkpoint

  [[nodiscard]] std::uint32_t servers() const { return shards; }
};

struct PsResult {
  bool done = false;  ///< every living worker was told that the job is over
  bool torn = false;  ///< a shard was lost with its follower; the job ended then
  std::vector<PsShardLog> shards;
  std::vector<std::uint64_t> versions;
  std::vector<std::map<std::uint64_t, std::uint64_t>> staleness;
  std::map<std::uint64_t, std::vector<std::uint64_t>> snapshots;  ///< step to models
  std::uint64_t computed = 0;  ///< slices that arrived at the first shard, repeats included
  std::uint64_t repeats = 0;   ///< repeats among them
  std::uint64_t late = 0;
  std::uint64_t mixed = 0;
  std::uint64_t reissued = 0;
  std::uint32_t takeovers = 0;        ///< of shards by their followers
  std::uint32_t wrong_snapshots = 0;  ///< snapshots of other slices than the ones before them
  std::uint64_t clock_gap_max = 0;    ///< greatest difference in pushes of the workers
  std::uint32_t quiet_moments = 0;    ///< holds that ended with all workers idle
  std::vector<parameter_server::StragglerChange> straggler_changes;
  std::uint64_t at_once = 0;  ///< slices of bsp that were applied as separate updates
  std::uint64_t probes = 0;
  std::optional<parameter_server::Rewind> rewind;  ///< training diverged
  std::uint64_t final_version = 0;                 ///< the version that every shard should have
  std::map<std::uint32_t, std::uint64_t> pushed;   ///< slices by worker number
  std::uint32_t cut_off = 0;                       ///< evictions of workers whose link is cut
  std::uint64_t neglect_max = 0;  ///< leases of other workers while one worker had none
  Duration over{};                ///< when all work was done
  Duration took{};
  // With a coordinator:
  std::optional<elastic::Outcome> outcome;
  std::uint32_t views = 0;
  Duration change_max{};                       ///< longest time from an order to stop to its effect
  std::vector<std::string> needless;           ///< members that were dismissed without a cause
  std::optional<std::uint64_t> stopped_after;  ///< slices that the checkpoint of a stop has
  std::vector<std::string> history;            ///< a line per event
};

/// Runs a job until there are no more events. The result is a function of the options.
[[nodiscard]] PsResult run_parameter_server(const PsOptions& options);

/// Passes the recorded pushes to a new shard; returns the resulting model.
[[nodiscard]] std::uint64_t replay(const parameter_server::SyncPlan& plan, std::uint32_t shard,
                                   const PsShardLog& log);
[[nodiscard]] parameter_server::SyncPlan plan_of(const PsOptions& options);
/// The plan after the changes of the run.
[[nodiscard]] parameter_server::SyncPlan plan_after(const PsOptions& options,
                                                    const PsResult& result);

inline constexpr double kUsualLoss = 1;  ///< of a slice

}  // namespace mayfly::sim
