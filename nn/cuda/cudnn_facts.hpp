#pragma once

// Private to nn/cuda: whether a machine can run the CUDA engine, decided from facts. Pure.

#include <cstddef>
#include <string>

#include "base/gpu_facts.hpp"
#include "base/result.hpp"

namespace mayfly::nn::cuda {

/// The facts. Versions of cuDNN as the library counts them (base/gpu_facts, library_version).
struct CudnnFacts {
  GpuFacts gpu;
  std::size_t found_cudnn = 0;  ///< cuDNN that was loaded
};

/// The oldest cuDNN with which the choice of convolutions was checked (docs/gpu.md).
inline constexpr std::size_t kCudnnMin = 91100;

/// Ok, or kUnsupported with one line that says what is missing and what to do.
[[nodiscard]] Result<void> judge(const CudnnFacts& facts);

/// The facts that the bits of a computation depend on, for a job's fingerprint and the log: "NVIDIA
/// H200, sm_90, cuDNN 9.19.0".
[[nodiscard]] std::string identity_of(const CudnnFacts& facts);

}  // namespace mayfly::nn::cuda
