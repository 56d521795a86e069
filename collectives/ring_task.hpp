#pragma once

// Turns operations of a Group into tasks of a RingLink: schedules become pieces of memory.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.hpp"
#include "collectives/ring_link.hpp"

namespace mayfly::collectives {

/// A member's place in its ring.
struct RingPlace {
  std::uint32_t size = 1;
  Rank rank{};
};

/// `sequence`: the number of the operation in its group, the same on every member.
[[nodiscard]] RingTask all_reduce_task(RingPlace place, std::uint64_t sequence,
                                       std::span<std::byte> data, DataType type, ReduceOp op);
/// Leaves the segment of the member's own rank in `data`.
[[nodiscard]] RingTask reduce_scatter_task(RingPlace place, std::uint64_t sequence,
                                           std::span<std::byte> data, DataType type, ReduceOp op);
[[nodiscard]] RingTask broadcast_task(RingPlace place, std::uint64_t sequence,
                                      std::span<std::byte> data, Rank root);
/// The member's own range must be in `all` already.
[[nodiscard]] RingTask all_gather_task(RingPlace place, std::uint64_t sequence,
                                       std::span<std::byte> all);
/// An all-reduce of one int32: nobody has the sum before everybody has given to it.
[[nodiscard]] RingTask barrier_task(RingPlace place, std::uint64_t sequence, std::int32_t& scratch);

}  // namespace mayfly::collectives
