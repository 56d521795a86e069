#pragma once

// Whether a machine can run the NCCL transport, decided from facts. Pure.

#include "base/gpu_facts.hpp"
#include "base/result.hpp"

namespace mayfly::collectives {

/// What was found. Versions of NCCL as the library counts them (base/gpu_facts, library_version).
struct NcclFacts {
  GpuFacts gpu;
  int built_nccl = 0;            ///< NCCL of this build
  int found_nccl = 0;            ///< NCCL that was loaded
  bool blocking_forced = false;  ///< NCCL_COMM_BLOCKING=1 is in the environment
};

/// Ok, or kUnsupported with one line that says what is missing and what to do.
[[nodiscard]] Result<void> judge(const NcclFacts& facts);

}  // namespace mayfly::collectives
