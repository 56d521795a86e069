#pragma once

// What `backend nccl` needs beside a transport: sums in the memory of the worker's GPU, and groups
// with a part that reduces there.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.hpp"
#include "collectives/group.hpp"
#include "collectives/nccl/device_sums.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::engine {

/// Sums and what they are made with. The engine whose gradients are summed goes after them.
struct DeviceSumsParts {
  std::unique_ptr<collectives::SumCalls> calls;
  std::unique_ptr<collectives::DeviceSums> sums;
};

/// Destroyed in reverse.
struct DeviceExchange {
  std::unique_ptr<collectives::Transport> transport;
  DeviceSumsParts parts;
};

/// Whether gradients are to be reduced in the memory of GPUs. Pure.
[[nodiscard]] bool reduces_on_device(const JobConfig& config);

/// What is summed in the memory of a GPU: parameters' gradients. Pure.
[[nodiscard]] collectives::DeviceSumsShape device_sums_shape(const ReductionLayout& layout,
                                                             bool exact,
                                                             std::uint32_t microbatches);

/// What make_device_sums() allocates in the memory of the GPU, in bytes. Pure.
[[nodiscard]] std::size_t device_sums_bytes(const ReductionLayout& layout, bool exact);

/// Sums of parameters' gradients, exact or as floats, of so many microbatches (of a step, all
/// members together). `gradient` is where the engine leaves gradients. kUnsupported, in one line,
/// if it does not, or if the module, the library, the device or memory is missing.
[[nodiscard]] Result<DeviceSumsParts> make_device_sums(
    const ReductionLayout& layout, bool exact, std::uint32_t microbatches,
    const std::optional<nn::DeviceGradient>& gradient);

/// Those of a job, and a transport. Fails alike. The calling thread is that of the transport.
[[nodiscard]] Result<DeviceExchange> make_device_exchange(
    const Job& job, const ReductionLayout& layout,
    const std::optional<nn::DeviceGradient>& gradient);

}  // namespace mayfly::engine
