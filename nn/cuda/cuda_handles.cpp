#include "nn/cuda/cuda_handles.hpp"

#include <fmt/format.h>

namespace mayfly::nn::cuda {

Result<void> check(cudaError_t status, const char* what_we_did) {
  if (status == cudaSuccess) {
    return {};
  }
  return Error{Errc::kUnsupported,
               fmt::format("CUDA, {}: {}", what_we_did, cudaGetErrorString(status))};
}

Result<OwnedStream> make_stream() {
  cudaStream_t stream = nullptr;
  Result<void> made =
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  if (!made.ok()) {
    return std::move(made).error();
  }
  return OwnedStream(stream);
}

Result<OwnedEvent> make_event() {
  cudaEvent_t event = nullptr;
  Result<void> made =
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  if (!made.ok()) {
    return std::move(made).error();
  }
  return OwnedEvent(event);
}

Result<DeviceMemory> make_device_memory(std::size_t bytes) {
  void* memory = nullptr;
  Result<void> made = check(cudaMalloc(&memory, bytes), "allocating device memory");
  if (!made.ok()) {
    return std::move(made).error();
  }
  DeviceMemory owned(memory);
  Result<void> cleared = check(cudaMemset(memory, 0, bytes), "clearing device memory");
  if (!cleared.ok()) {
    return std::move(cleared).error();
  }
  return owned;
}

Result<PinnedMemory> make_pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  Result<void> made =
      check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "allocating pinned host memory");
  if (!made.ok()) {
    return std::move(made).error();
  }
  return PinnedMemory(memory);
}

}  // namespace mayfly::nn::cuda
