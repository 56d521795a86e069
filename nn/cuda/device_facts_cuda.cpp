#include <cuda_runtime_api.h>
#include <cudnn_graph.h>

#include <array>

#include "nn/cuda/device_facts.hpp"

namespace mayfly::nn::cuda {
namespace {

void read_device(DeviceFacts& facts) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, facts.device) != cudaSuccess) {
    return;
  }
  facts.capability = 10 * properties.major + properties.minor;
  facts.name = properties.name;
  std::array<char, 32> bus{};
  if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), facts.device) ==
      cudaSuccess) {
    facts.bus = bus.data();
  }
}

}  // namespace

DeviceFacts read_device_facts(int device) {
  DeviceFacts facts;
  facts.device = device;
  facts.built_cuda = CUDART_VERSION;
  facts.found_cudnn = cudnnGetVersion();
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

}  // namespace mayfly::nn::cuda
