#include "nn/cuda/cudnn/conv_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/try_assign.hpp"
#include "nn/cuda/cudnn/conv_graph.hpp"

namespace mayfly::nn::cuda::cudnn {
namespace {

/// Reads `count` descriptors of `type` out of another one.
Result<std::vector<Descriptor>> parts_of(const Descriptor& whole, cudnnBackendAttributeName_t name,
                                         cudnnBackendDescriptorType_t type, std::int64_t count) {
  std::vector<Descriptor> parts;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i) {
    TRY_ASSIGN(auto part, Descriptor::create(type));
    handles.push_back(part.get());
    parts.push_back(std::move(part));
  }
  std::int64_t found = 0;
  TRY(check(cudnnBackendGetAttribute(whole.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                     &found, handles.data()),
            "reading what was found"));
  parts.resize(static_cast<std::size_t>(std::min(found, count)));
  return parts;
}

/// Why a note on an engine makes it unsuitable; null if it does not.
const char* objection(cudnnBackendNumericalNote_t note, Dtype dtype) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return "it is not deterministic";
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return "it does not sum in fp32";
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      return dtype == Dtype::kFp32 ? "it multiplies fp32 as TF32" : nullptr;
    default: return nullptr;
  }
}

/// The engine that a configuration sets the knobs of.
Result<Descriptor> engine_of(const Descriptor& configuration) {
  auto engines =
      parts_of(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  if (!engines.ok()) {
    return std::move(engines).error();
  }
  if (engines.value().empty()) {
    return Error{Errc::kUnsupported, "cuDNN: a configuration without an engine"};
  }
  return std::move(engines.value().front());
}

/// The engines that cuDNN's heuristics offer for a graph, with their knobs set ("configurations"),
/// in cuDNN's order of preference. Fails as cuDNN does.
Result<std::vector<Descriptor>> offered_for(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                            const PlanningTarget& target) {
  Builder builder(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  builder.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  target.describe(builder, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  TRY_ASSIGN(auto search, builder.finalise());
  std::int64_t count = 0;
  TRY(check(cudnnBackendGetAttribute(search.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
            "counting engines"));
  return parts_of(search, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

/// Why a configuration is not taken, from what its engine says about itself: not deterministic,
/// compiled at run time, sums not in fp32, or TF32 where fp32 is wanted. Null if it is.
Result<const char*> objection_to(const Descriptor& configuration, Dtype dtype) {
  TRY_ASSIGN(const auto engine, engine_of(configuration));
  const auto numerical = values_of<cudnnBackendNumericalNote_t>(
      engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  if (!numerical.ok()) {
    return numerical.error();
  }
  for (const cudnnBackendNumericalNote_t note : numerical.value()) {
    if (const char* why = objection(note, dtype); why != nullptr) {
      return why;
    }
  }
  const auto behaviour = values_of<cudnnBackendBehaviorNote_t>(
      engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  if (!behaviour.ok()) {
    return behaviour.error();
  }
  const bool compiled =
      std::ranges::count(behaviour.value(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != 0;
  return compiled ? "it is compiled at run time" : nullptr;
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

Result<ConvPlan> ConvPlan::finalised(const Descriptor& configuration, const ConvKey& key,
                                     const PlanningTarget& target) {
  TRY_ASSIGN(const char* const why, objection_to(configuration, key.dtype));
  if (why != nullptr) {
    return Error{Errc::kUnsupported, why};
  }
  Builder builder(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  builder.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  target.aim(builder, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  ConvPlan plan;
  plan.shape_ = key.shape;
  plan.pass_ = key.pass;
  TRY_ASSIGN(plan.plan_, builder.finalise());
  TRY_ASSIGN(plan.workspace_bytes_, workspace_of(plan.plan_));
  return plan;
}

Result<ConvPlan> ConvPlan::choose(const ConvKey& key, const PlanningTarget& target) {
  const Result<Descriptor> graph = graph_of(key.shape, key.pass, key.dtype, target);
  if (!graph.ok()) {
    return Error{Errc::kUnsupported, text_of(key) + ": " + graph.error().detail};
  }
  std::size_t offered = 0;
  std::string last = "none was offered";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (is_fused(key.pass) && mode == CUDNN_HEUR_MODE_FALLBACK) {
      continue;  // instead, the parts are computed one by one
    }
    const auto found = offered_for(graph.value(), mode, target);
    if (!found.ok()) {
      last = found.error().detail;
      continue;
    }
    for (const Descriptor& configuration : found.value()) {
      ++offered;
      Result<ConvPlan> plan = finalised(configuration, key, target);
      if (plan.ok()) {
        plan.value().rank_ = offered;
        return plan;
      }
      last = plan.error().detail;
    }
  }
  return Error{Errc::kUnsupported,
               fmt::format("cuDNN has no engine for {}: {} offered, the last left out as {}",
                           text_of(key), offered, last)};
}

Result<Descriptor> ConvPlan::bind(const ConvTensors& tensors) const {
  return bound_tensors(shape_, pass_, tensors);
}

Result<void> ConvPlan::run(cudnnHandle_t handle, const Descriptor& bound) const {
  return check(cudnnBackendExecute(handle, plan_.get(), bound.get()), "computing a convolution");
}

}  // namespace mayfly::nn::cuda::cudnn
