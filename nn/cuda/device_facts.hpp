#pragma once

// Private to nn/cuda: whether a machine can run the CUDA engine, as a pure judgement of facts, and
// the facts.

#include <cstddef>
#include <string>

#include "base/result.hpp"

namespace mayfly::nn::cuda {

/// What was found. Versions are 1000 * major + 10 * minor for CUDA, 10000 * major + 100 * minor +
/// patch for cuDNN, as the libraries give them.
struct DeviceFacts {
  int driver_cuda = 0;          ///< newest CUDA that the driver supports; 0: no driver
  int built_cuda = 0;           ///< CUDA of this build
  std::size_t found_cudnn = 0;  ///< cuDNN that was loaded
  int devices = 0;              ///< visible GPUs
  std::string device_error;     ///< why the driver could not even count them; empty: it could
  int device = 0;               ///< index of the one that is to be used
  int capability = 0;           ///< of that one: 10 * major + minor; 0: there is no such device
  std::string name;             ///< of that one
  std::string bus;              ///< where that one is plugged in: unique on its machine
};

/// The oldest GPU that our kernels are built for.
inline constexpr int kCapabilityMin = 80;
/// The oldest cuDNN that our choice of convolutions was checked with (docs/gpu.md).
inline constexpr std::size_t kCudnnMin = 91100;

/// Ok, or kUnsupported with one line that says what is missing and what to do.
[[nodiscard]] Result<void> judge(const DeviceFacts& facts);

/// What the bits of a computation depend on, for a job's fingerprint and for people: "NVIDIA H200,
/// sm_90, cuDNN 9.19.0".
[[nodiscard]] std::string identity_of(const DeviceFacts& facts);

/// Asks driver and libraries about `device`. Cheap; makes no context on a device.
[[nodiscard]] DeviceFacts read_device_facts(int device);

}  // namespace mayfly::nn::cuda
