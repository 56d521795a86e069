#include "tests/gpu/device_memory.hpp"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace mayfly::collectives::gpu_test {
namespace {

void require(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    std::_Exit(70);
  }
}

cudaStream_t cuda(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

void sleep_on_stream(void* /*nothing*/) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace

void use_device() {
  require(cudaSetDevice(0), "the device");
}

std::size_t device_bytes_in_use() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  require(cudaMemGetInfo(&free_bytes, &total_bytes), "device memory");
  return total_bytes - free_bytes;
}

void* allocate_on_device(std::size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) {
    require(cudaMalloc(&data, bytes), "device memory");
  }
  return data;
}

void free_on_device(void* data) {
  require(cudaFree(data), "device memory");
}

void copy_to_device(void* to, const void* from, std::size_t bytes) {
  require(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "a copy to the device");
  // For other streams a copy from pageable memory may not be complete yet.
  require(cudaDeviceSynchronize(), "a copy to the device");
}

void copy_from_device(void* to, const void* from, std::size_t bytes) {
  require(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "a copy from the device");
}

Stream::Stream() {
  cudaStream_t made = nullptr;
  require(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "a stream");
  stream_ = made;
}

Stream::~Stream() {
  require(cudaStreamDestroy(cuda(stream_)), "a stream");
}

void Stream::add_delay() {
  require(cudaLaunchHostFunc(cuda(stream_), sleep_on_stream, nullptr), "a delay");
}

void Stream::add_copy(void* to, const void* from, std::size_t bytes) {
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda(stream_)), "a copy");
}

void Stream::wait() const {
  require(cudaStreamSynchronize(cuda(stream_)), "a stream");
}

}  // namespace mayfly::collectives::gpu_test
