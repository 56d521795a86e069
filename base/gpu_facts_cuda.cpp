// The probe; the only part of base that needs CUDA, in a library of its own.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/gpu_facts.hpp"

namespace mayfly {
namespace {

void read_device(GpuFacts& facts) {
  cudaDeviceProp properties{};
  const cudaError_t read = cudaGetDeviceProperties(&properties, facts.device);
  if (read != cudaSuccess) {  // otherwise the GPU would count as too old
    facts.device_error = cudaGetErrorString(read);
    return;
  }
  facts.capability = 10 * properties.major + properties.minor;
  facts.name = properties.name;
  for (const char byte : properties.uuid.bytes) {
    facts.uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
}

}  // namespace

GpuFacts read_gpu_facts(int device) {
  GpuFacts facts;
  facts.device = device;
  facts.built_cuda = CUDART_VERSION;
  if (cudaDriverGetVersion(&facts.driver_cuda) != cudaSuccess || facts.driver_cuda == 0) {
    facts.driver_cuda = 0;
    return facts;
  }
  const cudaError_t counted = cudaGetDeviceCount(&facts.devices);
  if (counted == cudaErrorNoDevice) {
    facts.devices = 0;
  } else if (counted != cudaSuccess) {
    facts.device_error = cudaGetErrorString(counted);
  } else if (device >= 0 && device < facts.devices) {
    read_device(facts);
  }
  (void)cudaGetLastError();
  return facts;
}

}  // namespace mayfly
