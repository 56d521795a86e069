#pragma once

// Groups over NCCL: one GPU for each process, data in device memory. The members of a view exchange
// keys in GroupSpec::store, where rank 0 stores the id of the new communicator. NcclFacts decide
// whether a machine supports that; they are pure.

#include <memory>
#include <string>

#include "base/gpu_facts.hpp"
#include "base/result.hpp"
#include "collectives/nccl/live_comm.hpp"
#include "collectives/nccl/nccl_api.hpp"

namespace mayfly::collectives {

/// The facts about this machine. Versions of NCCL are numbered as in the library (base/gpu_facts,
/// library_version).
struct NcclFacts {
  GpuFacts gpu;
  int built_nccl = 0;            ///< NCCL of this build
  int found_nccl = 0;            ///< NCCL that was loaded
  bool blocking_forced = false;  ///< NCCL_COMM_BLOCKING=1 is in the environment
};

/// Ok, or kUnsupported with one line that names the missing part and the remedy.
[[nodiscard]] Result<void> judge(const NcclFacts& facts);

/// A transport on the device of `api`. Loads NCCL's kernels with a communicator of one rank, so
/// that later formations need not do that; it may take many seconds. `address`: a readable name
/// that is unique in the job. form() is called from one thread. kIo: NCCL or the device does not
/// work.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_nccl_transport(std::unique_ptr<NcclApi> api,
                                                                     const std::string& address);

/// Ok if NCCL can compute this reduction as Group promises; otherwise kUnsupported with the reason.
/// All members ask for the same reduction and so get the same answer.
[[nodiscard]] Result<void> check_reduction(DataType type, ReduceOp op);

/// The DeviceGroup of a communicator that has formed. Destroying the group flushes the
/// communicator, waiting for the others for a few seconds at most, or aborts it if operations are
/// still running.
[[nodiscard]] std::unique_ptr<Group> make_nccl_group(ViewId view, Rank rank, std::uint32_t size,
                                                     std::shared_ptr<NcclRuntime> runtime,
                                                     std::unique_ptr<LiveComm> comm);

}  // namespace mayfly::collectives
