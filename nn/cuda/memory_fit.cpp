#include "nn/cuda/memory_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace mayfly::nn::cuda {
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
