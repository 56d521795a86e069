#pragma once

// Private to the mpi module: needs Open MPI's headers.

#include <memory>

#include "collectives/group.hpp"
#include "collectives/mpi/mpi_queue.hpp"

namespace mayfly::collectives {

/// A group over `queue`, which it closes when it is destroyed.
[[nodiscard]] std::unique_ptr<Group> make_mpi_group(ViewId view, Rank rank, std::uint32_t size,
                                                    std::shared_ptr<MpiQueue> queue);

}  // namespace mayfly::collectives
