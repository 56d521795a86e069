#include "collectives/nccl/sum_calls.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "collectives/nccl/device_kernels.hpp"

namespace mayfly::collectives {
namespace {

Result<void> check(cudaError_t status, const char* what_we_did) {
  if (status == cudaSuccess) {
    return {};
  }
  (void)cudaGetLastError();
  return Error{Errc::kIo, fmt::format("CUDA, {}: {}", what_we_did, cudaGetErrorString(status))};
}

cudaStream_t cuda(DeviceStream stream) {
  return static_cast<cudaStream_t>(stream);
}

cudaEvent_t cuda_event(DeviceEvent event) {
  return static_cast<cudaEvent_t>(event);
}

Result<void*> allocated(cudaError_t status, void* memory, std::size_t bytes, const char* where) {
  if (status == cudaSuccess) {
    return memory;
  }
  (void)cudaGetLastError();
  return Error{Errc::kUnsupported, fmt::format("no {} MiB of {} for sums of gradients: {}",
                                               (bytes + (std::size_t{1} << 20) - 1) >> 20, where,
                                               cudaGetErrorString(status))};
}

class CudaSumCalls final : public SumCalls {
 public:
  explicit CudaSumCalls(int device) : device_(device) {}

  Result<void> bind_thread() override {
    return check(cudaSetDevice(device_), "choosing the device");
  }

  Result<void*> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, bytes);
    return allocated(status, memory, bytes, "GPU memory");
  }
  void release(void* memory) noexcept override { (void)cudaFree(memory); }
  Result<void*> allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    const cudaError_t status = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
    return allocated(status, memory, bytes, "pinned host memory");
  }
  void release_pinned(void* memory) noexcept override { (void)cudaFreeHost(memory); }
  Result<DeviceStream> make_stream() override {
    cudaStream_t stream = nullptr;
    Result<void> made =
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    return made.ok() ? Result<DeviceStream>(stream) : Result<DeviceStream>(made.error());
  }
  void destroy_stream(DeviceStream stream) noexcept override {
    (void)cudaStreamDestroy(cuda(stream));
  }
  Result<DeviceEvent> make_event() override {
    cudaEvent_t event = nullptr;
    Result<void> made =
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    return made.ok() ? Result<DeviceEvent>(event) : Result<DeviceEvent>(made.error());
  }
  void destroy_event(DeviceEvent event) noexcept override {
    (void)cudaEventDestroy(cuda_event(event));
  }

  // From memory that is not pinned: CUDA has read the values when the call returns.
  Result<void> upload(void* to, const void* from, std::size_t bytes, DeviceStream stream) override {
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda(stream)),
                 "copying to the device");
  }
  Result<void> download(void* to, const void* from, std::size_t bytes,
                        DeviceStream stream) override {
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda(stream)),
                 "copying from the device");
  }
  Result<void> copy(void* to, const void* from, std::size_t bytes, DeviceStream stream) override {
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda(stream)),
                 "copying on the device");
  }
  Result<void> clear(void* memory, std::size_t bytes, DeviceStream stream) override {
    return check(cudaMemsetAsync(memory, 0, bytes, cuda(stream)), "clearing device memory");
  }

  Result<void> add(const SumTask& task, DeviceStream stream) override {
    const device_kernels::Blocks blocks{.offsets = task.offsets,
                                        .exponents = task.exponents,
                                        .first = task.blocks.first,
                                        .last = task.blocks.last};
    static_assert(sizeof(device_kernels::QuantizeFlags) == 2 * sizeof(*task.flags));
    auto* const flags = reinterpret_cast<device_kernels::QuantizeFlags*>(task.flags);
    const int status =
        task.exact ? device_kernels::quantize(task.gradient, blocks, task.bits, !task.first,
                                              reinterpret_cast<std::int32_t*>(task.sums),
                                              task.observed, flags, stream)
                   : device_kernels::add_floats(task.gradient, blocks, !task.first,
                                                reinterpret_cast<float*>(task.sums), flags, stream);
    return check(static_cast<cudaError_t>(status), "adding a gradient");
  }

  Result<void> mean(const MeanTask& task, DeviceStream stream) override {
    const device_kernels::Blocks blocks{
        .offsets = task.offsets, .exponents = task.exponents, .first = 0, .last = task.blocks};
    const int status =
        task.exact ? device_kernels::dequantize(reinterpret_cast<const std::int32_t*>(task.sums),
                                                blocks, task.bits, task.scale, task.mean, stream)
                   : device_kernels::scale_floats(reinterpret_cast<const float*>(task.sums), blocks,
                                                  task.scale, task.mean, stream);
    return check(static_cast<cudaError_t>(status), "taking the mean of gradients");
  }

  Result<void> record(DeviceEvent event, DeviceStream stream) override {
    return check(cudaEventRecord(cuda_event(event), cuda(stream)), "marking a place");
  }
  Result<void> hold(DeviceStream stream, DeviceEvent event) override {
    return check(cudaStreamWaitEvent(cuda(stream), cuda_event(event), 0), "ordering streams");
  }
  Result<void> wait_for(DeviceStream stream) override {
    return check(cudaStreamSynchronize(cuda(stream)), "waiting for the device");
  }

 private:
  const int device_;
};

}  // namespace

Result<std::unique_ptr<SumCalls>> make_cuda_sum_calls(int device) {
  auto calls = std::make_unique<CudaSumCalls>(device);
  Result<void> opened = calls->bind_thread();
  if (opened.ok()) {
    opened = check(static_cast<cudaError_t>(device_kernels::load()), "loading our kernels");
  }
  if (!opened.ok()) {
    return Error{opened.error().code, fmt::format("GPU {}: {}", device, opened.error().detail)};
  }
  return std::unique_ptr<SumCalls>(std::move(calls));
}

}  // namespace mayfly::collectives
