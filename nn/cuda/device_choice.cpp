#include "nn/cuda/device_choice.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
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

Result<std::vector<std::string>> kinds_of(const std::vector<CudnnFacts>& gpus) {
  std::vector<std::string> kinds;
  for (const CudnnFacts& gpu : gpus) {
    std::string kind = identity_of(gpu);
    if (judge(gpu).ok() && std::ranges::count(kinds, kind) == 0) {
      kinds.push_back(std::move(kind));
    }
  }
  if (kinds.empty()) {
    TRY(judge(gpus.front()));
  }
  return kinds;
}

Result<DeviceClaim> DeviceClaim::take(const std::string& folder, const std::string& uuid) {
  constexpr mode_t kFileMode = 0644;
  const std::string path = fmt::format("{}/mayfly-gpu-{}.lock", folder, uuid);
  const auto failed = [&path] {
    return Error{Errc::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  };
  int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode);
  if (descriptor < 0 && errno == EACCES) {  // another user's file: a lock needs no write permission
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  }
  if (descriptor < 0) {
    return failed();
  }
  UniqueFd lock(descriptor);
  (void)::fchmod(descriptor, kFileMode);  // whatever the umask is; fails for another user's file
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK
               ? Error{Errc::kRefused, fmt::format("another worker has locked {}", path)}
               : failed();
  }
  return DeviceClaim(std::move(lock));
}

Result<ChosenDevice> claim_free(const std::string& folder, const std::vector<CudnnFacts>& gpus) {
  Error none{Errc::kRefused,
             fmt::format("other workers use all {} GPUs of this machine; start fewer, or name one "
                         "to share: device cuda:N",
                         gpus.size())};
  for (const CudnnFacts& gpu : gpus) {
    if (!judge(gpu).ok()) {
      continue;
    }
    Result<DeviceClaim> claim = DeviceClaim::take(folder, gpu.gpu.uuid);
    if (claim.ok()) {
      return ChosenDevice{gpu.gpu.device, std::move(claim).value()};
    }
    if (claim.error().code != Errc::kRefused) {
      none = std::move(claim).error();
    }
  }
  return none;
}

namespace {

std::optional<int> number_of(const Variables& variables, const char* name) {
  constexpr int kNumberMax = (1 << 20) - 1;
  const char* const text = variables(name);
  return number_in(text == nullptr ? "" : text, 0, kNumberMax);
}

}  // namespace

int local_number(const Variables& variables) {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}) {
    if (const auto number = number_of(variables, name)) {
      return *number;
    }
  }
  // A batch script also has SLURM_LOCALID, and all processes that it starts inherit it.
  const bool is_one_of_several = number_of(variables, "SLURM_STEP_NUM_TASKS").value_or(1) > 1;
  return is_one_of_several ? number_of(variables, "SLURM_LOCALID").value_or(-1) : -1;
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
