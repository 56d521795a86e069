#include "collectives/plan/ring_schedule.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace mayfly::collectives {
namespace {

// The position `steps` before `from` in a ring.
std::uint32_t before(std::uint32_t from, std::uint32_t steps, std::uint32_t size) {
  return (from + size - steps % size) % size;
}

void require_member(std::uint32_t size, Rank rank) {
  ENSURE(value(rank) < size, "a rank is below the size of its group");
}

}  // namespace

Segment segment_of(std::size_t count, std::uint32_t parts, std::uint32_t index) {
  ENSURE(index < parts, "there are only so many parts");
  const std::size_t base = count / parts;
  const std::size_t longer = count % parts;  // the first so many have one more
  return {.offset = index * base + std::min<std::size_t>(index, longer),
          .count = base + (index < longer ? 1 : 0)};
}

RingSchedule all_reduce_schedule(std::size_t count, std::uint32_t size, Rank rank) {
  require_member(size, rank);
  RingSchedule schedule;
  schedule.reduced = size - 1;
  // In step s a member passes on the segment that is s places behind its own; after size - 1 steps
  // it holds the complete segment one ahead of its own, and the second round spreads those.
  for (std::uint32_t s = 0; s < 2 * (size - 1); ++s) {
    schedule.outgoing.push_back(segment_of(count, size, before(value(rank), s, size)));
    schedule.incoming.push_back(segment_of(count, size, before(value(rank), s + 1, size)));
  }
  return schedule;
}

RingSchedule all_gather_schedule(std::size_t count_each, std::uint32_t size, Rank rank) {
  require_member(size, rank);
  RingSchedule schedule;
  for (std::uint32_t s = 0; s + 1 < size; ++s) {
    schedule.outgoing.push_back({before(value(rank), s, size) * count_each, count_each});
    schedule.incoming.push_back({before(value(rank), s + 1, size) * count_each, count_each});
  }
  return schedule;
}

RingSchedule broadcast_schedule(std::size_t count, std::uint32_t size, Rank rank, Rank root) {
  require_member(size, rank);
  require_member(size, root);
  RingSchedule schedule;
  schedule.starts = rank == root;
  if (!schedule.starts) {
    schedule.incoming.push_back({0, count});
  }
  if ((value(rank) + 1) % size != value(root)) {
    schedule.outgoing.push_back({0, count});
  }
  return schedule;
}

}  // namespace mayfly::collectives
