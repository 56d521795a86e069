#include "nn/cuda/running_step.hpp"

#include <utility>

#include "nn/cuda/memory_fit.hpp"
#include "nn/cuda/step_trial.hpp"

namespace mayfly::nn::cuda {

Result<void> RunningStep::make(const Model& model, std::uint32_t microbatch,
                               const CudaEngineOptions& options, cudnnHandle_t handle,
                               const std::vector<EngineRefusal>& refused) {
  executor.reset();
  convolver.reset();
  memory_ = DeviceMemory();  // before we ask how much there is
  Result<ConvPlans> plans = ConvPlans::choose(
      model, microbatch, options.dtype, cudnn::PlanningTarget(handle), options.engines, refused);
  if (!plans.ok()) {
    return std::move(plans).error();
  }
  conv_plans = std::move(plans).value();
  StepPlanOptions wanted{.dtype = options.dtype, .keeps_state = options.keeps_state};
  conv_plans.describe(wanted, microbatch);
  if (options.training_set != nullptr) {
    wanted.set = options.training_set->resident;
  }
  std::size_t free_bytes = 0;
  std::size_t all_bytes = 0;
  if (Result<void> asked = check(cudaMemGetInfo(&free_bytes, &all_bytes), "asking for memory");
      !asked.ok()) {
    return asked;
  }
  Result<StepPlan> fitting = make_fitting_plan(
      model, microbatch, wanted, {.free_bytes = free_bytes, .sums_bytes = options.sums_bytes});
  if (!fitting.ok()) {
    return std::move(fitting).error();
  }
  plan = std::move(fitting).value();
  Result<DeviceMemory> memory = make_device_memory(plan.memory.total());
  if (!memory.ok()) {
    return std::move(memory).error();
  }
  memory_ = std::move(memory).value();
  convolver.emplace(handle, conv_plans);
  executor.emplace(plan, device_kernels(), *convolver, memory_.get());
  (void)convolver->bind(plan, *executor);  // what it refuses is said again when it is tried
  // The memory was cleared on the null stream, which ours do not wait for.
  return check(cudaDeviceSynchronize(), "clearing memory");
}

Result<std::vector<EngineRefusal>> RunningStep::try_all(cudaStream_t stream) {
  const auto settle = [stream] {
    // A start that was refused leaves an error behind, which the next kernel's would be taken for.
    (void)cudaGetLastError();
    return check(cudaStreamSynchronize(stream), "trying it");
  };
  Result<std::vector<FailedConvolution>> failed =
      try_convolutions(plan, *executor, *convolver, stream, settle);
  if (!failed.ok()) {
    return std::move(failed).error();
  }
  std::vector<EngineRefusal> refused;
  for (FailedConvolution& each : failed.value()) {
    const EngineName& engine = conv_plans.of(each.key.shape, each.key.pass).engine();
    refused.push_back({each.key, engine, std::move(each.why)});
  }
  return refused;
}

Result<void> RunningStep::prepare(const Model& model, std::uint32_t microbatch,
                                  const CudaEngineOptions& options, cudnnHandle_t handle,
                                  cudaStream_t stream) {
  return plan_what_runs(
      [&](const std::vector<EngineRefusal>& refused) {
        return make(model, microbatch, options, handle, refused);
      },
      [&] { return try_all(stream); });
}

}  // namespace mayfly::nn::cuda
