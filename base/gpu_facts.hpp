#pragma once

// What is known of this machine's driver and of one of its GPUs, and whether that is enough: one
// probe and one wording for everything that computes or communicates on a GPU. Needs no CUDA to
// include. Any thread.

#include <cstddef>
#include <string>

#include "base/result.hpp"

namespace mayfly {

/// What was found. Versions of CUDA are 1000 * major + 10 * minor, as the runtime gives them.
struct GpuFacts {
  int driver_cuda = 0;       ///< newest CUDA that the driver supports; 0: no driver
  int built_cuda = 0;        ///< CUDA of this build
  int devices = 0;           ///< visible GPUs
  std::string device_error;  ///< why the driver could not even count them; empty: it could
  int device = 0;            ///< index of the one that is to be used
  int capability = 0;        ///< of that one: 10 * major + minor; 0: there is no such device
  std::string name;          ///< of that one
  std::string bus;           ///< where that one is plugged in: unique on its machine
};

/// The oldest GPU that our kernels are built for: compute capability 8.0.
inline constexpr int kGpuCapabilityMin = 80;

/// Ok, or kUnsupported with one line that says what is missing and what to do. The driver is judged
/// before what depends on it. Pure.
[[nodiscard]] Result<void> judge_gpu(const GpuFacts& facts);

/// The version of a library that counts 10000 * major + 100 * minor + patch, as cuDNN and NCCL do:
/// "9.19.0". Pure.
[[nodiscard]] std::string library_version(std::size_t version);

/// Asks the driver about `device`. Cheap; makes no context on a device. Library mayfly_gpu_probe,
/// where there is a CUDA toolkit.
[[nodiscard]] GpuFacts read_gpu_facts(int device);

}  // namespace mayfly
