#pragma once

// One simulated worker: the product's machine, numbers instead of parameters, and its connections.
// For parameter_server_world.cpp.

#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "collectives/parameter_server/core/worker_flow.hpp"

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
  parameter_server::WorkerFlow flow;
  std::vector<std::uint64_t> held;
  std::vector<std::uint64_t> fresh;
  std::vector<PsLane> up;
  std::vector<PsLane> down;
  std::vector<std::uint32_t> leader;  // which of the shard's two, as far as it knows
  bool alive = true;
  bool computes = false;
  bool over = false;
  std::uint64_t pushed = 0;
};

}  // namespace mayfly::sim
