#pragma once

// Private to the mpi module: needs Open MPI's headers.

#include <atomic>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "collectives/mpi/mpi_engine.hpp"
#include "collectives/mpi/mpi_world.hpp"

namespace mayfly::collectives {

/// Every member greets every other; returns once all have greeted us, so that nobody enters
/// anything blocking before all are there. Ends with kAborted as soon as `stop` is set, or with
/// kDeadline, naming a member that is missing. What members sent in older views and nobody took is
/// thrown away.
[[nodiscard]] Result<void> meet_members(MpiWorld& world, const GroupSpec& spec,
                                        const MpiPlace& place, Instant deadline,
                                        const std::atomic<bool>& stop);

}  // namespace mayfly::collectives
