#pragma once

// Groups over NCCL: one GPU for each process, data in device memory. The members of a view meet in
// GroupSpec::store, where rank 0 leaves the name of the new communicator.

#include <memory>
#include <string>

#include "collectives/nccl/nccl_api.hpp"

namespace mayfly::collectives {

/// A transport on the device of `api`. Loads NCCL's kernels by a communicator of one rank, so that
/// later formations need not; that may take many seconds. `address`: for people, unique in the job.
/// form() is called from one thread. kIo: NCCL or the device does not work.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_nccl_transport(std::unique_ptr<NcclApi> api,
                                                                     const std::string& address);

}  // namespace mayfly::collectives
