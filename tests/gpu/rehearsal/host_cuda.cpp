// Imitates on the CPU the few calls of the CUDA runtime that the GPU tests use: device memory is
// ordinary memory, and a stream carries out operations at once. With it the tests themselves can be
// tried without a GPU.

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

extern "C" {

cudaError_t cudaSetDevice(int /*device*/) {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t /*error*/) {
  return "rehearsed";
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  std::strcpy(properties->name, "the CPU, for a rehearsal");
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = std::malloc(bytes);
  return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t /*stream*/) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = 1;
  *total_bytes = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int /*flags*/) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t /*stream*/, cudaHostFn_t function, void* data) {
  function(data);
  return cudaSuccess;
}

}  // extern "C"
