#pragma once

// The group over one NCCL communicator. One communication thread drives it; the threads that start
// and wait for operations never touch NCCL.

#include <memory>

#include "collectives/nccl/live_comm.hpp"

namespace mayfly::collectives {

/// Ok if NCCL can do this reduction with the port's promises; else kUnsupported, and why. All
/// members ask for the same and so get the same answer.
[[nodiscard]] Result<void> check_reduction(DataType type, ReduceOp op);

/// The DeviceGroup of a communicator that has formed. Destroying the group flushes the
/// communicator, waiting for the others for a few seconds at most, or aborts it if operations are
/// still running.
[[nodiscard]] std::unique_ptr<Group> make_nccl_group(ViewId view, Rank rank, std::uint32_t size,
                                                     std::shared_ptr<NcclRuntime> runtime,
                                                     std::unique_ptr<LiveComm> comm);

}  // namespace mayfly::collectives
