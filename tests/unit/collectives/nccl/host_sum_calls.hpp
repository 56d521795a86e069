#pragma once

// SumCalls on the CPU: device memory is ordinary memory, and a stream carries out operations at
// once. The arithmetic is that of collectives/plan. Stateless, so any number of threads may use it.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collectives/nccl/sum_calls.hpp"
#include "collectives/plan/exact_sum.hpp"

namespace mayfly::collectives::test {

/// The arithmetic of the kernels.
inline void add_on_host(const SumTask& task) {
  for (std::uint32_t b = task.blocks.first; b < task.blocks.last; ++b) {
    const std::size_t first = task.offsets[b];
    const std::size_t size = task.offsets[b + 1] - first;
    if (task.exact) {
      std::int32_t observed = 0;
      const QuantizeResult result =
          quantize_add({task.gradient + first, size}, task.exponents[b], task.bits,
                       {reinterpret_cast<std::int32_t*>(task.sums) + first, size}, observed,
                       task.first ? Accumulate::kStore : Accumulate::kAdd);
      task.observed[b] = task.first ? observed : std::max(task.observed[b], observed);
      task.flags[0] += result.overflow ? 1 : 0;
      task.flags[1] += result.nonfinite ? 1 : 0;
      continue;
    }
    auto* const sums = reinterpret_cast<float*>(task.sums);
    bool finite = true;
    for (std::size_t i = first; i < first + size; ++i) {
      sums[i] = (task.first ? 0.0F : sums[i]) + task.gradient[i];
      finite = finite && task.gradient[i] - task.gradient[i] == 0.0F;
    }
    task.flags[1] += finite ? 0 : 1;
  }
}

inline void mean_on_host(const MeanTask& task) {
  for (std::uint32_t b = 0; b < task.blocks; ++b) {
    const std::size_t first = task.offsets[b];
    const std::size_t size = task.offsets[b + 1] - first;
    if (task.exact) {
      dequantize({reinterpret_cast<const std::int32_t*>(task.sums) + first, size},
                 task.exponents[b], task.bits, task.scale, {task.mean + first, size});
      continue;
    }
    const auto* const sums = reinterpret_cast<const float*>(task.sums);
    std::transform(sums + first, sums + first + size, task.mean + first,
                   [&task](float sum) { return sum * task.scale; });
  }
}

class HostSumCalls : public SumCalls {
 public:
  Result<void> bind_thread() override { return {}; }
  Result<void*> allocate(std::size_t bytes) override {
    void* const memory = std::malloc(bytes);
    std::memset(memory, 0xa5, bytes);  // callers must not rely on zeros
    return memory;
  }
  void release(void* memory) noexcept override { std::free(memory); }
  Result<void*> allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  void release_pinned(void* memory) noexcept override { std::free(memory); }
  Result<DeviceStream> make_stream() override { return DeviceStream(this); }
  void destroy_stream(DeviceStream /*stream*/) noexcept override {}
  Result<DeviceEvent> make_event() override { return DeviceEvent(this); }
  void destroy_event(DeviceEvent /*event*/) noexcept override {}

  Result<void> upload(void* to, const void* from, std::size_t bytes,
                      DeviceStream /*stream*/) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Result<void> download(void* to, const void* from, std::size_t bytes,
                        DeviceStream /*stream*/) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Result<void> copy(void* to, const void* from, std::size_t bytes,
                    DeviceStream /*stream*/) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Result<void> clear(void* memory, std::size_t bytes, DeviceStream /*stream*/) override {
    std::memset(memory, 0, bytes);
    return {};
  }
  Result<void> add(const SumTask& task, DeviceStream /*stream*/) override {
    add_on_host(task);
    return {};
  }
  Result<void> mean(const MeanTask& task, DeviceStream /*stream*/) override {
    mean_on_host(task);
    return {};
  }
  Result<void> record(DeviceEvent /*event*/, DeviceStream /*stream*/) override { return {}; }
  Result<void> hold(DeviceStream /*stream*/, DeviceEvent /*event*/) override { return {}; }
  Result<void> wait_for(DeviceStream /*stream*/) override { return {}; }
};

}  // namespace mayfly::collectives::test
