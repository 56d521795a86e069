#pragma once

// Private to the mpi module: needs Open MPI's headers.
//
// How a group's operations are carried out. Two ways: MPI's own collectives, which are the fastest
// but cannot be stopped, and a ring of messages between neighbours, which can be left at any time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "collectives/group.hpp"
#include "collectives/mpi/mpi_world.hpp"
#include "collectives/plan/types.hpp"

namespace mayfly::collectives {

/// One operation of a group, as it was started.
struct MpiTask {
  enum class Kind : std::uint8_t { kAllReduce, kReduceScatter, kBroadcast, kAllGather, kBarrier };
  Kind kind = Kind::kBarrier;
  std::span<std::byte>
      data;  ///< a reduction's elements, a broadcast's bytes, an all-gather's whole
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
  Rank root{};
  std::uint64_t sequence = 0;  ///< of the group, from 1
};

/// An operation that has begun. Destroying one that is not done lets go of it at once: MPI never
/// touches the task's memory afterwards.
class MpiRun {
 public:
  enum class Progress : std::uint8_t { kIdle, kMoved, kDone };
  virtual ~MpiRun() = default;
  /// Goes on as far as it can without waiting (the ring), or to the end (MPI's collectives). An
  /// error ends the group.
  [[nodiscard]] virtual Result<Progress> advance() = 0;
};

/// Carries out the operations of one group, one after the other. One thread at a time.
class MpiEngine {
 public:
  virtual ~MpiEngine() = default;
  [[nodiscard]] virtual std::unique_ptr<MpiRun> begin(const MpiTask& task) = 0;
  /// Whether advance() returns without waiting for others.
  [[nodiscard]] virtual bool can_be_stopped() const = 0;
  /// Lets MPI do what is left of finished operations, which others may wait for.
  virtual void poke() = 0;
};

/// Where a member stands in its group, and who is beside it.
struct MpiPlace {
  Rank rank{};
  std::uint32_t size = 1;
  std::vector<Peer> peers;       ///< by rank
  std::vector<int> world_ranks;  ///< likewise
};

/// MPI's own collectives on a communicator of the members, made here: all of them call this at
/// once.
[[nodiscard]] Result<std::unique_ptr<MpiEngine>> make_collective_engine(MpiWorld& world,
                                                                        const MpiPlace& place,
                                                                        ViewId view);
/// A ring of messages through memory of our own, which stays behind if the ring is left.
[[nodiscard]] std::unique_ptr<MpiEngine> make_ring_engine(MpiWorld& world, const MpiPlace& place,
                                                          ViewId view);

}  // namespace mayfly::collectives
