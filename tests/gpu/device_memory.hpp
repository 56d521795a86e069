#pragma once

// Device memory and streams for the tests. CUDA's errors end the process: what a test could still
// say after one is worth nothing.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

namespace mayfly::collectives::gpu_test {

inline void require(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    std::_Exit(70);
  }
}

class Stream {
 public:
  Stream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void wait() const { require(cudaStreamSynchronize(stream_), "waiting for a stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// An array in device memory, copied in and out synchronously.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    if (count > 0) {
      void* memory = nullptr;
      require(cudaMalloc(&memory, count * sizeof(T)), "device memory");
      data_ = static_cast<T*>(memory);
    }
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { put(values); }
  ~DeviceArray() { (void)cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  void put(const std::vector<T>& values) {
    require(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            "copying to the device");
    // A copy from pageable memory may still be on its way for other streams.
    require(cudaDeviceSynchronize(), "copying to the device");
  }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> out(count_);
    require(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
            "copying from the device");
    return out;
  }
  [[nodiscard]] T* data() { return data_; }
  [[nodiscard]] std::span<std::byte> bytes() {
    return {reinterpret_cast<std::byte*>(data_), count_ * sizeof(T)};
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

}  // namespace mayfly::collectives::gpu_test
