#pragma once

// One worker of a simulated job with parameter servers, and what may go wrong with what it says and
// hears. For parameter_server_world.cpp.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "collectives/parameter_server/core/worker_flow.hpp"
#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

/// One direction of a connection: in order, and cut off when the connection breaks.
struct PsLane {
  Instant last;
  std::uint64_t generation = 0;
};

struct PsWorker {
  explicit PsWorker(std::uint32_t shards)
      : flow(shards), held(shards), fresh(shards), up(shards), down(shards), leader(shards) {}
  MemberId id{};
  std::uint32_t number = 0;
  std::uint32_t host = 0;  // the number of the first worker there
  Instant joined;
  parameter_server::WorkerFlow flow;
  std::vector<std::uint64_t> held;
  std::vector<std::uint64_t> fresh;
  std::vector<PsLane> up;
  std::vector<PsLane> down;
  std::vector<std::uint32_t> leader;  // which of the shard's two, as far as it knows
  bool alive = true;
  bool computes = false;
  bool over = false;
  bool greets_first = false;  // the first shard was greeted
  std::uint64_t pushed = 0;
  bool is_given_up = false;   // lost, or taken for it
  bool has_met = false;       // a view, and knows where the shards are
  bool let_in = false;        // by the first shard
  std::uint64_t granted = 0;  // serial of its newest lease
  std::uint64_t missed = 0;   // leases that others have got since it had nothing
};

using PsWorkers = std::map<MemberId, std::unique_ptr<PsWorker>>;

/// Who lives and is not done.
[[nodiscard]] std::vector<MemberId> living(const PsWorkers& workers);
/// How many slices the fastest has pushed more than the slowest.
[[nodiscard]] std::uint64_t clock_gap(const PsWorkers& workers);
/// With the bound that a broken machine keeps.
[[nodiscard]] PsOptions loosened(PsOptions options);
/// What this worker says to a shard, or hears from it, is lost at present: PsCut.
[[nodiscard]] bool is_lost(const PsOptions& options, const PsWorker& worker, std::uint32_t shard,
                           bool goes_up, Instant now);
/// The job's plan as this worker knows it.
[[nodiscard]] parameter_server::SyncPlan plan_for(const parameter_server::SyncPlan& plan,
                                                  const PsWorker& worker);
/// The loss of a slice, by the plan that its worker knows.
[[nodiscard]] double loss_of(const PsOptions& options, const parameter_server::SyncPlan& plan,
                             std::uint64_t slice);

}  // namespace mayfly::sim
