#include "nn/cuda/cudnn/conv_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "nn/cuda/cudnn/conv_graph.hpp"
#include "nn/cuda/cudnn/engine_config.hpp"

namespace mayfly::nn::cuda::cudnn {
namespace {

std::string text_of(const ConvShape& shape, ConvPass pass, Dtype dtype) {
  return fmt::format("the {} of {} in {}", to_string(pass), shape.text(), nn::name_of(dtype));
}

Result<std::size_t> workspace_of(const Descriptor& plan) {
  const auto bytes = values_of<std::int64_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1);
  if (!bytes.ok()) {
    return bytes.error();
  }
  const auto workspace = static_cast<std::size_t>(bytes.value().at(0));
  if (workspace > kWorkspaceBytesMax) {
    return Error{Errc::kUnsupported, fmt::format("it wants {} MiB of scratch", workspace >> 20)};
  }
  return workspace;
}

}  // namespace

Result<ConvPlan> ConvPlan::finalised(const Descriptor& configuration, const ConvShape& shape,
                                     ConvPass pass, Dtype dtype, const PlanningTarget& target) {
  const Result<const char*> why = objection_to(configuration, dtype);
  if (!why.ok()) {
    return why.error();
  }
  if (why.value() != nullptr) {
    return Error{Errc::kUnsupported, why.value()};
  }
  Builder builder(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  builder.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  target.aim(builder, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  Result<Descriptor> finished = builder.finalise();
  if (!finished.ok()) {
    return std::move(finished).error();
  }
  const Result<std::size_t> workspace = workspace_of(finished.value());
  if (!workspace.ok()) {
    return workspace.error();
  }
  Result<EngineName> name = name_of(configuration);
  if (!name.ok()) {
    return std::move(name).error();
  }
  ConvPlan plan;
  plan.shape_ = shape;
  plan.pass_ = pass;
  plan.plan_ = std::move(finished).value();
  plan.workspace_bytes_ = workspace.value();
  plan.engine_ = std::move(name).value();
  return plan;
}

Result<std::vector<ConvPlan>> ConvPlan::offered(const ConvShape& shape, ConvPass pass, Dtype dtype,
                                                const PlanningTarget& target, std::size_t max) {
  const std::string what = text_of(shape, pass, dtype);
  const Result<Descriptor> graph = graph_of(shape, pass, dtype, target);
  if (!graph.ok()) {
    return Error{Errc::kUnsupported, what + ": " + graph.error().detail};
  }
  std::vector<ConvPlan> plans;
  std::size_t offered = 0;
  std::string last = "none was offered";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (is_fused(pass) && mode == CUDNN_HEUR_MODE_FALLBACK) {
      continue;  // the fall-back is to compute the parts one by one
    }
    const auto found = offered_for(graph.value(), mode, target);
    if (!found.ok()) {
      last = found.error().detail;
      continue;
    }
    for (const Descriptor& configuration : found.value()) {
      ++offered;
      Result<ConvPlan> plan = finalised(configuration, shape, pass, dtype, target);
      if (!plan.ok()) {
        last = plan.error().detail;
        continue;
      }
      const bool is_known = std::ranges::any_of(
          plans, [&](const ConvPlan& each) { return each.engine_ == plan.value().engine_; });
      if (is_known) {
        continue;
      }
      plan.value().rank_ = offered;
      plans.push_back(std::move(plan).value());
      if (plans.size() == max) {
        return plans;
      }
    }
  }
  if (plans.empty()) {
    return Error{Errc::kUnsupported, fmt::format("cuDNN has no engine for {}: {} offered, the last "
                                                 "left out as {}",
                                                 what, offered, last)};
  }
  return plans;
}

Result<ConvPlan> ConvPlan::choose(const ConvShape& shape, ConvPass pass, Dtype dtype,
                                  const PlanningTarget& target) {
  Result<std::vector<ConvPlan>> plans = offered(shape, pass, dtype, target, 1);
  if (!plans.ok()) {
    return std::move(plans).error();
  }
  return std::move(plans.value().front());
}

Result<ConvPlan> ConvPlan::by(const EngineName& engine, const ConvShape& shape, ConvPass pass,
                              Dtype dtype, const PlanningTarget& target) {
  const auto refused = [&](const Error& error) {
    return Error{Errc::kUnsupported, fmt::format("{} for {}: {}", engine.text(),
                                                 text_of(shape, pass, dtype), error.detail)};
  };
  const Result<Descriptor> graph = graph_of(shape, pass, dtype, target);
  if (!graph.ok()) {
    return refused(graph.error());
  }
  const Result<Descriptor> configuration = configured(graph.value(), engine, target);
  if (!configuration.ok()) {
    return refused(configuration.error());
  }
  Result<ConvPlan> plan = finalised(configuration.value(), shape, pass, dtype, target);
  return plan.ok() ? std::move(plan) : refused(plan.error());
}

Result<Descriptor> ConvPlan::bind(const ConvTensors& tensors) const {
  return bound_tensors(shape_, pass_, tensors);
}

Result<void> ConvPlan::run(cudnnHandle_t handle, const Descriptor& bound) const {
  return check(cudnnBackendExecute(handle, plan_.get(), bound.get()), "computing a convolution");
}

}  // namespace mayfly::nn::cuda::cudnn
