#include "base/gpu_facts.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace mayfly {
namespace {

Error unsupported(std::string why) {
  return {Errc::kUnsupported, std::move(why)};
}

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<void> judge_driver(const GpuFacts& f) {
  if (f.driver_cuda == 0) {
    return unsupported(
        "no NVIDIA driver on this machine (libcuda.so.1 cannot be loaded); install one, or use "
        "device cpu");
  }
  // Within a major version of CUDA, programs for any newer minor version run on an older driver.
  if (f.driver_cuda / 1000 < f.built_cuda / 1000) {
    return unsupported(fmt::format(
        "the NVIDIA driver is too old: it supports CUDA {}, this build needs {}; update the driver",
        cuda_version(f.driver_cuda), cuda_version(f.built_cuda / 1000 * 1000)));
  }
  return {};
}

Result<void> judge_device(const GpuFacts& f) {
  if (!f.device_error.empty()) {
    return unsupported(fmt::format("the NVIDIA driver finds no usable GPU: {}", f.device_error));
  }
  if (f.devices == 0) {
    return unsupported(
        "the NVIDIA driver finds no GPU; is CUDA_VISIBLE_DEVICES set so that it hides all?");
  }
  if (f.device < 0 || f.device >= f.devices) {
    return unsupported(fmt::format("there is no GPU {}: this machine shows {}, counted from 0",
                                   f.device, f.devices));
  }
  if (f.capability < kGpuCapabilityMin) {
    return unsupported(fmt::format(
        "GPU {} is too old: compute capability {}.{}, needed is {}.{} or newer", f.device,
        f.capability / 10, f.capability % 10, kGpuCapabilityMin / 10, kGpuCapabilityMin % 10));
  }
  return {};
}

}  // namespace

Result<void> judge_gpu(const GpuFacts& facts) {
  Result<void> driver = judge_driver(facts);
  return driver.ok() ? judge_device(facts) : driver;
}

std::string library_version(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

void require_gpu(const Result<void>& outcome) {
  if (!outcome.ok()) [[unlikely]] {
    std::fprintf(stderr, "mayfly: this worker's GPU has failed: %s\n",
                 outcome.error().detail.c_str());
    std::abort();
  }
}

}  // namespace mayfly
