#pragma once

// Properties of this machine's driver and of one of its GPUs, and the check whether they suffice:
// one probe and one wording for all code that computes or communicates on a GPU. This header can be
// included without CUDA. Any thread.

#include <cstddef>
#include <string>

#include "base/result.hpp"

namespace mayfly {

/// The result of a probe. Versions of CUDA are 1000 * major + 10 * minor, as the runtime gives
/// them.
struct GpuFacts {
  int driver_cuda = 0;       ///< newest CUDA that the driver supports; 0: no driver
  int built_cuda = 0;        ///< CUDA of this build
  int devices = 0;           ///< visible GPUs
  std::string device_error;  ///< why the driver could not count or describe GPUs; empty: no error
  int device = 0;            ///< index of the GPU to use; the fields below describe it
  int capability = 0;        ///< compute capability, 10 * major + minor; 0: no such device
  std::string name;          ///< its model name
  std::string uuid;          ///< of the GPU, or of its slice (MIG) that this process sees
};

/// The oldest GPU for which Mayfly's kernels are built: compute capability 8.0.
inline constexpr int kGpuCapabilityMin = 80;

/// Ok, or kUnsupported with one line that names the missing part and the remedy. The driver is
/// checked first, because everything else depends on it. Pure.
[[nodiscard]] Result<void> judge_gpu(const GpuFacts& facts);

/// The version of a library that counts 10000 * major + 100 * minor + patch, as cuDNN and NCCL do:
/// "9.19.0". Pure.
[[nodiscard]] std::string library_version(std::size_t version);

/// Asks the driver about `device`. Cheap; makes no context on a device. Library mayfly_gpu_probe,
/// where there is a CUDA toolkit.
[[nodiscard]] GpuFacts read_gpu_facts(int device);

/// The reaction of a worker whose GPU fails during a step: prints the error on standard error and
/// aborts the process, which the job handles like the death of any other worker. Code that runs
/// within a step has no caller that could handle an error, and without its GPU the process cannot
/// continue. Does nothing if `outcome` is ok.
void require_gpu(const Result<void>& outcome);

}  // namespace mayfly
