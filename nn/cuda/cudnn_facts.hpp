#pragma once

// Private to nn/cuda: whether a machine can run the CUDA engine, as a pure judgement of facts, and
// the facts.

#include <cstddef>
#include <string>

#include "base/gpu_facts.hpp"
#include "base/result.hpp"

namespace mayfly::nn::cuda {

/// What was found. Versions of cuDNN as the library counts them (base/gpu_facts, library_version).
struct CudnnFacts {
  GpuFacts gpu;
  std::size_t found_cudnn = 0;  ///< cuDNN that was loaded
};

/// The oldest cuDNN that our choice of convolutions was checked with (docs/gpu.md).
inline constexpr std::size_t kCudnnMin = 91100;

/// Ok, or kUnsupported with one line that says what is missing and what to do.
[[nodiscard]] Result<void> judge(const CudnnFacts& facts);

/// What the bits of a computation depend on, for a job's fingerprint and for people: "NVIDIA H200,
/// sm_90, cuDNN 9.19.0".
[[nodiscard]] std::string identity_of(const CudnnFacts& facts);

/// What engines of cuDNN are known by, and the name of a table of them: "sm_90-cudnn-9.19.0".
[[nodiscard]] std::string kind_of(const CudnnFacts& facts);

/// Asks driver and library about `device`. Cheap; makes no context on a device.
[[nodiscard]] CudnnFacts read_cudnn_facts(int device);

}  // namespace mayfly::nn::cuda
