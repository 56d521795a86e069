#pragma once

// The schedules of operations in which members form a ring and exchange data with only their two
// neighbours.
//
// For one member a ring operation is two streams of segments: an incoming one from the previous
// member and an outgoing one to the next. The incoming segment i is sent on, reduced or unchanged,
// as the outgoing segment i + 1; only the first outgoing segment is the member's own. (In a
// broadcast only the root has a segment of its own; the others only send on what arrives.) So one
// rule is all of a member's flow control, and pieces of any size can be sent on before their
// segment is complete:
//
//   bytes sent so far <= bytes of the first outgoing segment + bytes received (and reduced) so far
//
// Overwriting is safe: a byte of the final result can only arrive after the member's own
// contribution to it has been sent. Pure functions; any thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.hpp"

namespace mayfly::collectives {

/// A range of elements.
struct Segment {
  std::size_t offset = 0;
  std::size_t count = 0;

  friend bool operator==(const Segment&, const Segment&) = default;
};

/// The index-th of `parts` contiguous ranges that tile `count` elements, sizes differing by at most
/// one. Some are empty if count < parts.
[[nodiscard]] Segment segment_of(std::size_t count, std::uint32_t parts, std::uint32_t index);

/// One member's part of a ring operation. Both lists are in stream order; a member's outgoing list
/// has the sizes of the next member's incoming list.
struct RingSchedule {
  std::vector<Segment> outgoing;
  std::vector<Segment> incoming;
  std::size_t reduced = 0;  ///< number of incoming segments that are reduced; the rest are copied
  bool starts = true;       ///< the first outgoing segment is the member's own
};

/// Reduce-scatter followed by all-gather: 2 (size - 1) segments each way.
[[nodiscard]] RingSchedule all_reduce_schedule(std::size_t count, std::uint32_t size, Rank rank);

/// Sends every member's range of `count_each` elements to every other member; the member's own
/// range must be in its place already. size - 1 segments each way.
[[nodiscard]] RingSchedule all_gather_schedule(std::size_t count_each, std::uint32_t size,
                                               Rank rank);

/// Sends the root's elements along the ring, from the root to the member before it.
[[nodiscard]] RingSchedule broadcast_schedule(std::size_t count, std::uint32_t size, Rank rank,
                                              Rank root);

}  // namespace mayfly::collectives
