#pragma once

// The transport that carries gradients, for the setting `backend`; and, for `nccl`, the sums of
// gradients in the memory of the worker's GPU.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "collectives/group.hpp"
#include "collectives/group_engine.hpp"
#include "collectives/nccl/device_sums.hpp"
#include "engine/config/config.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/device_engine.hpp"

namespace mayfly::engine {

/// Checks, before anything is started, whether this process can use the configured backend.
/// kUnsupported with the missing part and what the user can do.
[[nodiscard]] Result<void> check_backend(const JobConfig& config);

/// The transport of this process. For `mpi` this starts MPI, which waits for all ranks of the
/// mpirun, and must be called once. Not for `nccl`, whose transport make_device_exchange() makes.
/// `delay` (may be empty) returns how late this member's messages leave, for tests of stragglers.
[[nodiscard]] Result<std::unique_ptr<collectives::Transport>> make_transport(
    const JobConfig& config, collectives::DelaySource delay);

/// Names the set of processes that a member must come from, for the job's fingerprint: the mpirun
/// that started this one for `mpi`, "any" for the others.
[[nodiscard]] std::string process_set(const JobConfig& config);

/// Sums in the memory of a GPU, with the calls that they are made with. Destroyed before the engine
/// whose gradients are summed.
struct DeviceSumsParts {
  std::unique_ptr<collectives::SumCalls> calls;
  std::unique_ptr<collectives::DeviceSums> sums;
};

/// The transport is destroyed after the sums.
struct DeviceExchange {
  std::unique_ptr<collectives::Transport> transport;
  DeviceSumsParts parts;
};

/// Whether gradients are reduced in the memory of GPUs. Pure.
[[nodiscard]] bool reduces_on_device(const JobConfig& config);

/// The shape of the sums of parameters' gradients in the memory of a GPU. Pure.
[[nodiscard]] collectives::DeviceSumsShape device_sums_shape(const ReductionLayout& layout,
                                                             bool exact,
                                                             std::uint32_t microbatches);

/// The bytes that make_device_sums() allocates in the memory of the GPU. Pure.
[[nodiscard]] std::size_t device_sums_bytes(const ReductionLayout& layout, bool exact);

/// Sums of parameters' gradients, exact or as floats. `microbatches` is their number in a step, of
/// all members together; `gradient` is the memory in which the engine stores gradients.
/// kUnsupported, in one line, if the module, the library, the device or memory is missing.
[[nodiscard]] Result<DeviceSumsParts> make_device_sums(const ReductionLayout& layout, bool exact,
                                                       std::uint32_t microbatches,
                                                       const nn::DeviceGradient& gradient);

/// The sums of a job, and a transport whose groups also have a part in device memory. Fails as
/// make_device_sums() does. The calling thread must be the one that uses the transport.
[[nodiscard]] Result<DeviceExchange> make_device_exchange(const Job& job,
                                                          const ReductionLayout& layout,
                                                          const nn::DeviceGradient& gradient);

}  // namespace mayfly::engine
