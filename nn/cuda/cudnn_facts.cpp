#include "nn/cuda/cudnn_facts.hpp"

#include <fmt/format.h>

namespace mayfly::nn::cuda {

Result<void> judge(const CudnnFacts& facts) {
  TRY(judge_gpu(facts.gpu));
  if (facts.found_cudnn < kCudnnMin) {
    return Error{Errc::kUnsupported,
                 fmt::format("cuDNN is too old: {} was found, needed is {} or newer",
                             library_version(facts.found_cudnn), library_version(kCudnnMin))};
  }
  return {};
}

std::string identity_of(const CudnnFacts& facts) {
  return fmt::format("{}, sm_{}, cuDNN {}", facts.gpu.name, facts.gpu.capability,
                     library_version(facts.found_cudnn));
}

}  // namespace mayfly::nn::cuda
