#pragma once

// The two engines of the mpi transport: MPI's own collectives, which are the fastest but cannot be
// stopped, and a ring of messages between neighbours, which can be left at any time. Private to the
// mpi module: needs Open MPI's headers.

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "collectives/group_engine.hpp"
#include "collectives/mpi/mpi_world.hpp"

namespace mayfly::collectives {

/// A member's place in its group, and the other members.
struct MpiPlace {
  Rank rank{};
  std::uint32_t size = 1;
  std::vector<Peer> peers;       ///< by rank
  std::vector<int> world_ranks;  ///< likewise
};

/// An engine with MPI's own collectives, on a communicator of the members that is made here: all
/// members call this function together, and it returns to none before all have called it. If the
/// group is aborted inside an operation that does not return, the process ends.
[[nodiscard]] Result<std::unique_ptr<GroupEngine>> make_collective_engine(MpiWorld& world,
                                                                          const MpiPlace& place,
                                                                          ViewId view);
/// An engine with a ring of messages through memory of its own, which is kept if the ring is left.
[[nodiscard]] std::unique_ptr<GroupEngine> make_ring_engine(MpiWorld& world, const MpiPlace& place,
                                                            ViewId view);

/// How a thread that has to poll waits without keeping the core from threads that can run. Call
/// pause() after each poll that found nothing and moved() after each other one. The first polls
/// follow each other at once, because most answers arrive soon; then other threads run first; after
/// a millisecond without an answer some member is late, and the thread sleeps between polls.
class PollBackoff {
 public:
  void moved() {
    polls_ = 0;
    late_ = false;
  }
  void pause() {
    ++polls_;
    if (polls_ < kEager) {
      return;
    }
    if (late_) {
      std::this_thread::sleep_for(kNap);
      return;
    }
    ::sched_yield();
    if (polls_ == kEager) {
      since_ = monotonic_now();
    } else if (polls_ % kClockEvery == 0) {
      late_ = monotonic_now() - since_ > kPatience;
    }
  }

 private:
  static constexpr unsigned kEager = 50;
  static constexpr unsigned kClockEvery = 16;
  static constexpr Duration kPatience = milliseconds(1);
  static constexpr std::chrono::microseconds kNap{50};

  unsigned polls_ = 0;
  Instant since_;  // instant of the first poll that yielded the core
  bool late_ = false;
};

}  // namespace mayfly::collectives
