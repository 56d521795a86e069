#include "nn/cuda/cudnn_convolver.hpp"

#include <fmt/format.h>

#include <set>

#include "base/check.hpp"

namespace mayfly::nn::cuda {

Result<cudnn::ConvPlan> ConvPlans::plan(const ConvKey& key, const cudnn::PlanningTarget& target,
                                        const EngineTable* table) {
  std::set<EngineName> refused;
  for (const EngineRefusal& each : use_.not_run) {
    if (each.key == key) {
      refused.insert(each.engine);
    }
  }
  if (!refused.empty() && is_fused(key.pass)) {
    return Error{Errc::kUnsupported, "the device refuses it"};
  }
  if (const EngineEntry* entry = table != nullptr ? table->find(key) : nullptr;
      entry != nullptr && !refused.contains(entry->engine)) {
    if (entry->engine.is_unfused()) {
      return Error{Errc::kUnsupported, "the table has it computed in parts"};
    }
    Result<cudnn::ConvPlan> named =
        cudnn::ConvPlan::by(entry->engine, key.shape, key.pass, key.dtype, target);
    if (named.ok()) {
      ++use_.by_table;
      return named;
    }
    if (use_.refused++ == 0) {
      use_.first_refusal = named.error().detail;
    }
  }
  if (refused.empty()) {
    return cudnn::ConvPlan::choose(key.shape, key.pass, key.dtype, target);
  }
  Result<std::vector<cudnn::ConvPlan>> offered =
      cudnn::ConvPlan::offered(key.shape, key.pass, key.dtype, target, refused.size() + 1);
  if (!offered.ok()) {
    return std::move(offered).error();
  }
  for (cudnn::ConvPlan& plan : offered.value()) {
    if (!refused.contains(plan.engine())) {
      return std::move(plan);
    }
  }
  return Error{Errc::kUnsupported,
               fmt::format("the GPU runs no engine for {} that cuDNN offers: {} refused, the last "
                           "{}",
                           text_of(key), refused.size(), use_.not_run.back().text())};
}

Result<ConvPlans> ConvPlans::choose(const Model& model, std::uint32_t microbatch, Dtype dtype,
                                    const cudnn::PlanningTarget& target, const EngineTable* table,
                                    const std::vector<EngineRefusal>& refused_before) {
  ConvPlans all;
  all.use_.not_run = refused_before;
  for (const ConvKey& key : convolutions_of_step(model, microbatch, dtype)) {
    const std::size_t refused = all.use_.refused;
    Result<cudnn::ConvPlan> plan = all.plan(key, target, table);
    if (!plan.ok() && is_fused(key.pass)) {
      all.use_.refused = refused;  // it is none of the convolutions that are computed
      continue;
    }
    if (!plan.ok()) {
      return std::move(plan).error();
    }
    all.use_.fused += is_fused(key.pass) ? 1 : 0;
    all.use_.engines.emplace(key, plan.value().engine());
    all.plans_.emplace(std::pair{key.shape, key.pass}, std::move(plan).value());
  }
  all.use_.convolutions = all.plans_.size();
  return all;
}

void ConvPlans::describe(StepPlanOptions& options, std::uint32_t microbatch) const {
  // Smaller microbatches are asked about only to say what would fit.
  const auto as_planned = [microbatch](ConvShape shape) {
    shape.images = microbatch;
    return shape;
  };
  options.workspace_bytes = [this, as_planned](const ConvShape& shape, ConvPass pass) {
    return of(as_planned(shape), pass).workspace_bytes();
  };
  options.has_fused = [this, as_planned](const ConvShape& shape, ConvPass pass) {
    return has(as_planned(shape), pass);
  };
}

bool ConvPlans::has(const ConvShape& shape, ConvPass pass) const {
  return plans_.contains({shape, pass});
}

const cudnn::ConvPlan& ConvPlans::of(const ConvShape& shape, ConvPass pass) const {
  const auto found = plans_.find({shape, pass});
  ENSURE(found != plans_.end(), "every convolution of the network was planned");
  return found->second;
}

Result<void> CudnnConvolver::bind(const StepPlan& plan, const StepExecutor& executor) {
  Result<void> all;
  bound_.clear();
  bound_.resize(plan.operations.size());
  for (std::size_t i = 0; i < plan.operations.size(); ++i) {
    const auto* convolve = std::get_if<Convolve>(&plan.operations[i]);
    if (convolve == nullptr) {
      continue;
    }
    bound_[i].plan = &plans_.of(plan.layers[convolve->layer].conv, convolve->pass);
    bound_[i].tensors = bound_[i].plan->bind(executor.tensors_of(*convolve));
    if (all.ok() && !bound_[i].tensors.ok()) {
      all = bound_[i].tensors.error();
    }
  }
  return all;
}

Result<void> CudnnConvolver::convolve(std::size_t operation, const Convolve& /*what*/,
                                      const ConvTensors& /*tensors*/, Stream /*stream*/) {
  ENSURE(operation < bound_.size() && bound_[operation].plan != nullptr,
         "convolutions are bound before they are computed");
  const Bound& bound = bound_[operation];
  return bound.tensors.ok() ? bound.plan->run(handle_, bound.tensors.value())
                            : Result<void>(bound.tensors.error());
}

}  // namespace mayfly::nn::cuda
