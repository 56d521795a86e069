#pragma once

// A Group that walks rings over any RingLink. It owns one communication thread, which runs the
// queued operations in order; the threads that start and wait for operations never touch the link.

#include <memory>

#include "collectives/group.hpp"
#include "collectives/ring_link.hpp"

namespace mayfly::collectives {

/// A group whose members are connected by `link`, which may be null only for a group of one.
/// The group is complete: every member has a link. Its first operation is barrier_task(0, ...),
/// which form() has run already, so that its own operations count from 1.
[[nodiscard]] std::unique_ptr<Group> make_ring_group(ViewId view, Rank rank, std::uint32_t size,
                                                     std::unique_ptr<RingLink> link);

/// Runs a barrier on a new link. When it succeeds every member of the ring has formed its link.
/// Returns the sum of all members' votes, for what they must agree on before they go on.
[[nodiscard]] Result<std::int32_t> run_first_barrier(RingLink& link, std::uint32_t size, Rank rank,
                                                     std::int32_t vote, Instant deadline);

/// Who stands beside `rank` in the ring of `peers`.
[[nodiscard]] RingNeighbours neighbours_of(const std::vector<Peer>& peers, Rank rank);

/// Checks what a transport cannot form: no peers, a rank outside of them.
[[nodiscard]] Result<void> check_spec(const GroupSpec& spec);

}  // namespace mayfly::collectives
