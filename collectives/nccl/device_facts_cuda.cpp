#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>

#include "collectives/nccl/device_facts.hpp"

namespace mayfly::collectives {
namespace {

int capability_of(int device) {
  int major = 0;
  int minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    return 0;
  }
  return 10 * major + minor;
}

}  // namespace

DeviceFacts read_device_facts(int device) {
  DeviceFacts facts;
  facts.device = device;
  facts.built_cuda = CUDART_VERSION;
  facts.built_nccl = NCCL_VERSION_CODE;
  (void)ncclGetVersion(&facts.found_nccl);
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  facts.blocking_forced = blocking != nullptr && std::strcmp(blocking, "1") == 0;
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
    facts.capability = capability_of(device);
  }
  (void)cudaGetLastError();
  return facts;
}

}  // namespace mayfly::collectives
