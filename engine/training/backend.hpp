#pragma once

// From the setting `backend` to the transport that carries gradients.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "collectives/delayed_engine.hpp"
#include "collectives/group.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// Whether this process can use the configured backend, said before anything is started:
/// kUnsupported with what is missing and what to do.
[[nodiscard]] Result<void> check_backend(const JobConfig& config);

/// The transport of this process. For `mpi` this starts MPI, which waits for all ranks of the
/// mpirun, and must be called once.
/// Not for `nccl`: engine/training/device_exchange makes that.
/// `delay` (may be empty) says how late this member is, see collectives/delayed_engine.
[[nodiscard]] Result<std::unique_ptr<collectives::Transport>> make_transport(
    const JobConfig& config, collectives::DelaySource delay);

/// Names the set of processes that a member must come from, for the job's fingerprint: the mpirun
/// that started this one for `mpi`, "any" for the others.
[[nodiscard]] std::string process_set(const JobConfig& config);

}  // namespace mayfly::engine
