#pragma once

// A Group over any GroupEngine: numbers the operations and runs them one after the other, on
// whichever thread is at hand. A thread that waits for an operation which no thread has begun runs
// it itself, which saves two switches of threads; the others are run by the group's own thread.

#include <memory>

#include "collectives/group.hpp"
#include "collectives/group_engine.hpp"

namespace mayfly::collectives {

/// A group whose members are connected through `engine`, which is null exactly for a group of one.
/// Sequence number 0 is that of run_first_barrier(); the group's own operations count from 1.
[[nodiscard]] std::unique_ptr<Group> make_queued_group(ViewId view, Rank rank, std::uint32_t size,
                                                       std::unique_ptr<GroupEngine> engine);

/// Runs a barrier on a new engine. When it succeeds every member of the view has formed its engine.
/// Returns the sum of all members' votes, for what they must agree on before they continue. Fails
/// as GroupEngine::advance(), or with kDeadline.
[[nodiscard]] Result<std::int32_t> run_first_barrier(GroupEngine& engine, std::int32_t vote,
                                                     Instant deadline);

/// kInvalidInput for what no transport can form: no peers, or a rank outside of them.
[[nodiscard]] Result<void> check_spec(const GroupSpec& spec);

}  // namespace mayfly::collectives
