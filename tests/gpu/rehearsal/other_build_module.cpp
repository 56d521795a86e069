// A module of either kind from another build. It reports its build; any other use of it ends the
// process.

#include <cstdlib>

#include "collectives/transport_module.hpp"
#include "nn/cuda/cuda_module.hpp"

namespace {

// The text that modules once reported for every build, whatever their sources.
constexpr const char* kBuild = "0.1.0 " __VERSION__;

template <typename R, typename... A>
R stale(A... /*arguments*/) {
  std::abort();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const mayfly::nn::cuda::CudaModule*
mayfly_cuda_module() {
  static const mayfly::nn::cuda::CudaModule module{.build = kBuild, .probe = stale, .make = stale};
  return &module;
}

extern "C" __attribute__((visibility("default"))) const mayfly::collectives::TransportModule*
mayfly_transport_module() {
  static const mayfly::collectives::TransportModule module{
      .build = kBuild, .probe = stale, .make = stale, .make_sum_calls = stale};
  return &module;
}
