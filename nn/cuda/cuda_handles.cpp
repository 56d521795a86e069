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
  TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  return OwnedStream(stream);
}

Result<OwnedEvent> make_event() {
  cudaEvent_t event = nullptr;
  TRY(check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
  return OwnedEvent(event);
}

Result<DeviceMemory> make_device_memory(std::size_t bytes) {
  void* memory = nullptr;
  TRY(check(cudaMalloc(&memory, bytes), "allocating device memory"));
  DeviceMemory owned(memory);
  TRY(check(cudaMemset(memory, 0, bytes), "clearing device memory"));
  return owned;
}

Result<PinnedMemory> make_pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  TRY(check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "allocating pinned host memory"));
  return PinnedMemory(memory);
}

}  // namespace mayfly::nn::cuda
