#include "nn/cuda/device_choice.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "base/parse.hpp"

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

Result<DeviceClaim> DeviceClaim::take(const std::string& folder, const std::string& bus) {
  std::string name = bus;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ':' || c == '/'; }, '-');
  const std::string path = fmt::format("{}/mayfly-gpu-{}.lock", folder, name);
  int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0 && errno == EACCES) {  // another user's: a lock needs no permission to write
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  }
  if (descriptor < 0) {
    return Error{Errc::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  }
  UniqueFd lock(descriptor);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{Errc::kRefused, fmt::format("another worker uses the GPU at {}", bus)};
  }
  return DeviceClaim(std::move(lock));
}

int local_number() {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    const char* const text = std::getenv(name);
    if (const auto number = number_in(text == nullptr ? "" : text, 0, 1023)) {
      return *number;
    }
  }
  return -1;
}

namespace {

std::size_t mib_above(std::size_t bytes) {
  return (bytes + (std::size_t{1} << 20) - 1) >> 20;
}

}  // namespace

std::uint32_t largest_fitting(const Model& model, std::uint32_t microbatch,
                              const StepPlanOptions& options, std::size_t bytes) {
  std::uint32_t fits = 0;
  std::uint32_t too_large = microbatch;
  while (fits + 1 < too_large) {
    const std::uint32_t middle = fits + (too_large - fits) / 2;
    const bool does = make_step_plan(model, middle, options).memory.total() <= bytes;
    (does ? fits : too_large) = middle;
  }
  return fits;
}

Result<void> check_fit(const Model& model, std::uint32_t microbatch, const StepPlanOptions& options,
                       const StepPlan& plan, const GpuMemory& memory) {
  const std::size_t needed = plan.memory.total() + memory.sums_bytes;
  if (needed <= memory.free_bytes) {
    return {};
  }
  const std::size_t for_steps = memory.free_bytes - std::min(memory.free_bytes, memory.sums_bytes);
  const std::uint32_t fits = largest_fitting(model, microbatch, options, for_steps);
  const std::string sums =
      memory.sums_bytes == 0
          ? ""
          : fmt::format(" ({} of them for sums of gradients)", mib_above(memory.sums_bytes));
  return Error{Errc::kUnsupported,
               fmt::format("{} with a microbatch of {} needs {} MiB{} of GPU memory, {} MiB are "
                           "free; {}",
                           model.name, microbatch, mib_above(needed), sums, memory.free_bytes >> 20,
                           fits == 0 ? std::string("not even a microbatch of 1 would fit")
                                     : fmt::format("a microbatch of {} would fit", fits))};
}

Result<StepPlan> make_fitting_plan(const Model& model, std::uint32_t microbatch,
                                   StepPlanOptions options, const GpuMemory& memory) {
  if (options.set.has_value()) {
    StepPlan plan = make_step_plan(model, microbatch, options);
    if (plan.memory.total() + memory.sums_bytes + kFreeBesideSet <= memory.free_bytes) {
      return plan;
    }
    options.set.reset();
  }
  StepPlan plan = make_step_plan(model, microbatch, options);
  TRY(check_fit(model, microbatch, options, plan, memory));
  return plan;
}

}  // namespace mayfly::nn::cuda
