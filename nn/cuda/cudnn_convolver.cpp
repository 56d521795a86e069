#include "nn/cuda/cudnn_convolver.hpp"

#include <utility>
#include <variant>

#include "base/check.hpp"
#include "base/try_assign.hpp"

namespace mayfly::nn::cuda {
namespace {

Result<void> named(const ConvKey& key, Result<void> outcome) {
  return outcome.ok() ? std::move(outcome)
                      : Error{outcome.error().code, text_of(key) + ": " + outcome.error().detail};
}

}  // namespace

Result<ConvPlans> ConvPlans::choose(const Model& model, std::uint32_t microbatch, Dtype dtype,
                                    const cudnn::PlanningTarget& target) {
  ConvPlans all;
  all.dtype_ = dtype;
  for (const ConvKey& key : convolutions_of_step(model, microbatch, dtype)) {
    TRY_ASSIGN(auto plan, cudnn::ConvPlan::choose(key, target));
    all.plans_.emplace(key, std::move(plan));
  }
  return all;
}

void ConvPlans::describe(StepPlanOptions& options, std::uint32_t microbatch) const {
  // The planner asks about smaller microbatches only to report which one would fit.
  const auto as_planned = [microbatch](ConvShape shape) {
    shape.images = microbatch;
    return shape;
  };
  options.workspace_bytes = [this, as_planned](const ConvShape& shape, ConvPass pass) {
    return of(as_planned(shape), pass).workspace_bytes();
  };
}

const cudnn::ConvPlan& ConvPlans::of(const ConvShape& shape, ConvPass pass) const {
  const auto found = plans_.find({dtype_, shape, pass});
  ENSURE(found != plans_.end(), "every convolution of the network was planned");
  return found->second;
}

Result<void> CudnnConvolver::bind(const StepPlan& plan, const StepExecutor& executor) {
  bound_.clear();
  bound_.resize(plan.operations.size());
  for (std::size_t i = 0; i < plan.operations.size(); ++i) {
    const auto* convolve = std::get_if<Convolve>(&plan.operations[i]);
    if (convolve == nullptr) {
      continue;
    }
    Bound& bound = bound_[i];
    bound.key = {plan.dtype, plan.layers[convolve->layer].conv, convolve->pass};
    bound.plan = &plans_.of(bound.key.shape, bound.key.pass);
    Result<cudnn::Descriptor> tensors = bound.plan->bind(executor.tensors_of(*convolve));
    if (!tensors.ok()) {
      return named(bound.key, std::move(tensors).error());
    }
    bound.tensors = std::move(tensors).value();
  }
  return {};
}

Result<void> CudnnConvolver::convolve(std::size_t operation, const Convolve& /*what*/,
                                      const ConvTensors& /*tensors*/, Stream /*stream*/) {
  ENSURE(operation < bound_.size() && bound_[operation].plan != nullptr,
         "convolutions are bound before they are computed");
  const Bound& bound = bound_[operation];
  return named(bound.key, bound.plan->run(handle_, bound.tensors));
}

}  // namespace mayfly::nn::cuda
