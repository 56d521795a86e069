#pragma once

// One worker of a simulated job with parameter servers, its connections, and the loss of its
// messages. For parameter_server_world.cpp.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "collectives/parameter_server/core/worker_flow.hpp"
#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

/// One direction of a connection. Messages arrive in order, and not after the connection broke.
struct PsLane {
  Instant last;
  std::uint64_t generation = 0;
};

struct PsWorker {
  explicit PsWorker(std::uint32_t shards)
      : flow(shards), held(shards), fresh(shards), up(shards), down(shards), leader(shards) {}
  MemberId id{};
  std::uint32_t number = 0;
  std::uint32_t host = 0;  // the number of the first worker on that host
  Instant joined;
  parameter_server::WorkerFlow flow;
  std::vector<std::uint64_t> held;
  std::vector<std::uint64_t> fresh;
  std::vector<PsLane> up;
  std::vector<PsLane> down;
  std::vector<std::uint32_t> leader;  // place of each shard's leader, as far as the worker knows
  bool alive = true;
  bool computes = false;
  bool over = false;
  bool greets_first = false;  // it has sent its greeting to the first shard
  std::uint64_t pushed = 0;
  bool is_given_up = false;   // lost, or declared lost
  bool has_met = false;       // it has entered a view and knows where the shards are
  bool let_in = false;        // the first shard has accepted it
  std::uint64_t granted = 0;  // serial number of its newest lease
  std::uint64_t missed = 0;   // leases given to other workers while it has had none
};

using PsWorkers = std::map<MemberId, std::unique_ptr<PsWorker>>;

/// The workers that are alive and not done.
[[nodiscard]] std::vector<MemberId> living(const PsWorkers& workers);
/// The difference between the slices that the fastest and the slowest worker have pushed.
[[nodiscard]] std::uint64_t clock_gap(const PsWorkers& workers);
/// The options with the SSP bound of a broken machine (PsSabotage::kStaleBound).
[[nodiscard]] PsOptions loosened(PsOptions options);
/// Whether messages of this worker to a shard (`goes_up`) or from it are lost now, see PsCut.
[[nodiscard]] bool is_lost(const PsOptions& options, const PsWorker& worker, std::uint32_t shard,
                           bool goes_up, Instant now);
/// The job's plan as this worker knows it.
[[nodiscard]] parameter_server::SyncPlan plan_for(const parameter_server::SyncPlan& plan,
                                                  const PsWorker& worker);
/// The loss of a slice by the plan that its worker knows.
[[nodiscard]] double loss_of(const PsOptions& options, const parameter_server::SyncPlan& plan,
                             std::uint64_t slice);

}  // namespace mayfly::sim
