#include "nn/cuda/cudnn/conv_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/try_assign.hpp"

namespace mayfly::nn::cuda::cudnn {
namespace {

// Arbitrary but different numbers, by which plan and variant pack identify tensors.
constexpr std::int64_t kX = 1;
constexpr std::int64_t kFilter = 2;
constexpr std::int64_t kY = 3;
constexpr std::int64_t kAlignment = 16;

using Sizes = std::vector<std::int64_t>;

cudnnDataType_t data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16: return CUDNN_DATA_BFLOAT16;
    case Dtype::kFp16: return CUDNN_DATA_HALF;
    case Dtype::kFp32: break;
  }
  return CUDNN_DATA_FLOAT;
}

/// A tensor whose second dimension, the channels, lies innermost.
Result<Descriptor> tensor(std::int64_t id, Dtype dtype, std::int64_t outer, std::int64_t channels,
                          std::int64_t size) {
  return Builder(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, Sizes{outer, channels, size, size})
      .set(CUDNN_ATTR_TENSOR_STRIDES, Sizes{channels * size * size, 1, channels * size, channels})
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
      .finalise();
}

Result<Descriptor> convolution(const ConvShape& shape) {
  return Builder(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Sizes{1, 1})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Sizes{shape.stride, shape.stride})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Sizes{shape.padding, shape.padding})
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Sizes{shape.padding, shape.padding})
      .finalise();
}

/// The names of the same attributes in each pass.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, x, filter, y, alpha, beta;
};

OperationNames names_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvPass::kInputGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvPass::kWeightGradient: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

/// The graph of a pass. All tensors are of `dtype`. Fails as cuDNN does for an impossible
/// convolution.
Result<Descriptor> graph_of(const ConvKey& key, const PlanningTarget& target) {
  const ConvShape& shape = key.shape;
  TRY_ASSIGN(const auto x,
             tensor(kX, key.dtype, shape.images, shape.in_channels, shape.input_size));
  TRY_ASSIGN(const auto filter,
             tensor(kFilter, key.dtype, shape.out_channels, shape.in_channels, shape.kernel));
  TRY_ASSIGN(const auto y,
             tensor(kY, key.dtype, shape.images, shape.out_channels, shape.output_size));
  TRY_ASSIGN(const auto what, convolution(shape));
  const OperationNames names = names_of(key.pass);
  std::vector<Descriptor> operations;
  TRY_ASSIGN(auto operation, Builder(names.type)
                                 .set(names.convolution, what)
                                 .set(names.x, x)
                                 .set(names.filter, filter)
                                 .set(names.y, y)
                                 .set(names.alpha, 1.0F)
                                 .set(names.beta, 0.0F)
                                 .finalise());
  operations.push_back(std::move(operation));
  Builder builder(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  builder.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  target.aim(builder, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  return builder.finalise();
}

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

/// Why a note about an engine makes it unsuitable; null if it does not.
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

/// Why a configuration is not taken, from the notes of its engine: not deterministic, compiled at
/// run time, sums not in fp32, or TF32 although fp32 is wanted. Null if it is taken.
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
    return Error{Errc::kUnsupported,
                 fmt::format("it needs {} MiB of scratch memory", workspace >> 20)};
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
  TRY_ASSIGN(plan.plan_, builder.finalise());
  TRY_ASSIGN(plan.workspace_bytes_, workspace_of(plan.plan_));
  return plan;
}

Result<ConvPlan> ConvPlan::choose(const ConvKey& key, const PlanningTarget& target) {
  const Result<Descriptor> graph = graph_of(key, target);
  if (!graph.ok()) {
    return Error{Errc::kUnsupported, text_of(key) + ": " + graph.error().detail};
  }
  std::size_t offered = 0;
  std::string last = "none was offered";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
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
  return Builder(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
      .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Sizes{kX, kFilter, kY})
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
           std::vector<void*>{tensors.x, tensors.filter, tensors.y})
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, tensors.workspace)
      .finalise();
}

Result<void> ConvPlan::run(cudnnHandle_t handle, const Descriptor& bound) const {
  return check(cudnnBackendExecute(handle, plan_.get(), bound.get()), "computing a convolution");
}

}  // namespace mayfly::nn::cuda::cudnn
