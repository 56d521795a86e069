#pragma once

// Groups over NCCL: one GPU for each process, data in device memory. The members of a view meet in
// GroupSpec::store, where rank 0 leaves the name of the new communicator.

#include <memory>
#include <string>

#include "collectives/nccl/live_comm.hpp"
#include "collectives/nccl/nccl_api.hpp"

namespace mayfly::collectives {

/// A transport on the device of `api`. Loads NCCL's kernels by a communicator of one rank, so that
/// later formations need not; that may take many seconds. `address`: a readable name that is unique
/// in the job. form() is called from one thread. kIo: NCCL or the device does not work.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_nccl_transport(std::unique_ptr<NcclApi> api,
                                                                     const std::string& address);

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
