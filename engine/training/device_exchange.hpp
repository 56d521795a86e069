#pragma once

// What `backend nccl` needs beside a transport: sums in the memory of the worker's GPU, and groups
// with a part that reduces there.

#include <memory>
#include <optional>

#include "base/result.hpp"
#include "collectives/group.hpp"
#include "collectives/nccl/device_sums.hpp"
#include "engine/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::engine {

/// Destroyed in reverse; the engine whose gradients are summed goes after it.
struct DeviceExchange {
  std::unique_ptr<collectives::Transport> transport;
  std::unique_ptr<collectives::SumCalls> calls;
  std::unique_ptr<collectives::DeviceSums> sums;
};

/// Whether gradients are to be reduced in the memory of GPUs. Pure.
[[nodiscard]] bool reduces_on_device(const JobConfig& config);

/// `gradient` is where the worker's engine leaves gradients. kUnsupported, in one line, if it does
/// not, or if the module, the library, the device or memory is missing. The calling thread is that
/// of the transport.
[[nodiscard]] Result<DeviceExchange> make_device_exchange(
    const Job& job, const ReductionLayout& layout,
    const std::optional<nn::DeviceGradient>& gradient);

}  // namespace mayfly::engine
