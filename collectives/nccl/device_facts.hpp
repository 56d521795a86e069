#pragma once

// Whether a machine can run the NCCL transport, as a pure judgement of facts, and the facts.

#include <string>

#include "base/result.hpp"

namespace mayfly::collectives {

/// What was found. Versions are 1000 * major + 10 * minor for CUDA, 10000 * major + 100 * minor +
/// patch for NCCL, as the libraries give them.
struct DeviceFacts {
  int driver_cuda = 0;           ///< newest CUDA that the driver supports; 0: no driver
  int built_cuda = 0;            ///< CUDA of this build
  int built_nccl = 0;            ///< NCCL of this build
  int found_nccl = 0;            ///< NCCL that was loaded
  int devices = 0;               ///< visible GPUs
  std::string device_error;      ///< why the driver could not even count them; empty: it could
  int device = 0;                ///< index of the one that is to be used
  int capability = 0;            ///< of that one: 10 * major + minor; 0: there is no such device
  bool blocking_forced = false;  ///< NCCL_COMM_BLOCKING=1 is in the environment
};

/// The oldest GPU that our kernels are built for.
inline constexpr int kCapabilityMin = 80;

/// Ok, or kUnsupported with one line that says what is missing and what to do.
[[nodiscard]] Result<void> judge(const DeviceFacts& facts);

/// Asks driver and libraries about `device`. Cheap; makes no context on a device.
[[nodiscard]] DeviceFacts read_device_facts(int device);

}  // namespace mayfly::collectives
