#include "nn/cuda/cudnn/conv_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace mayfly::nn::cuda::cudnn {
namespace {

// Any numbers that differ: plan and variant pack agree on them.
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

/// What the same thing is called in each pass.
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

Result<Descriptor> operation(const ConvShape& shape, ConvPass pass, Dtype dtype) {
  Result<Descriptor> x = tensor(kX, dtype, shape.images, shape.in_channels, shape.input_size);
  Result<Descriptor> filter =
      tensor(kFilter, dtype, shape.out_channels, shape.in_channels, shape.kernel);
  Result<Descriptor> y = tensor(kY, dtype, shape.images, shape.out_channels, shape.output_size);
  Result<Descriptor> conv = convolution(shape);
  for (Result<Descriptor>* part : {&x, &filter, &y, &conv}) {
    if (!part->ok()) {
      return part->error();
    }
  }
  const OperationNames names = names_of(pass);
  return Builder(names.type)
      .set(names.convolution, conv.value())
      .set(names.x, x.value())
      .set(names.filter, filter.value())
      .set(names.y, y.value())
      .set(names.alpha, 1.0F)
      .set(names.beta, 0.0F)
      .finalise();
}

Result<Descriptor> graph_of(const Descriptor& operation, const PlanningTarget& target) {
  Builder builder(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  builder.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  target.aim(builder, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  return builder.finalise();
}

/// Reads `count` descriptors of `type` out of another one.
Result<std::vector<Descriptor>> parts_of(const Descriptor& whole, cudnnBackendAttributeName_t name,
                                         cudnnBackendDescriptorType_t type, std::int64_t count) {
  std::vector<Descriptor> parts;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i) {
    Result<Descriptor> part = Descriptor::create(type);
    if (!part.ok()) {
      return std::move(part).error();
    }
    handles.push_back(part.value().get());
    parts.push_back(std::move(part).value());
  }
  std::int64_t found = 0;
  Result<void> read =
      check(cudnnBackendGetAttribute(whole.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                     &found, handles.data()),
            "reading what was found");
  if (!read.ok()) {
    return std::move(read).error();
  }
  parts.resize(static_cast<std::size_t>(std::min(found, count)));
  return parts;
}

/// Engine configurations for a graph, the best first by cuDNN's own account.
Result<std::vector<Descriptor>> configurations(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                               const PlanningTarget& target) {
  Builder builder(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  builder.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  target.describe(builder, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  Result<Descriptor> search = builder.finalise();
  if (!search.ok()) {
    return std::move(search).error();
  }
  std::int64_t count = 0;
  Result<void> counted =
      check(cudnnBackendGetAttribute(search.value().get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
            "counting engines");
  if (!counted.ok()) {
    return std::move(counted).error();
  }
  return parts_of(search.value(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                  count);
}

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

/// Why an engine will not do, from what it says about itself; null if it will.
Result<const char*> objection(const Descriptor& engine, Dtype dtype) {
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

/// cuDNN's engine number and knobs.
Result<std::string> name_of(const Descriptor& engine, const Descriptor& configuration) {
  const auto index = values_of<std::int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1);
  if (!index.ok()) {
    return index.error();
  }
  std::string name = fmt::format("eng{}", index.value().at(0));
  auto knobs = parts_of(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                        CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS);
  if (!knobs.ok()) {
    return std::move(knobs).error();
  }
  for (const Descriptor& knob : knobs.value()) {
    std::int64_t count = 0;
    cudnnBackendKnobType_t type{};
    std::int64_t value = 0;
    Result<void> read = check(cudnnBackendGetAttribute(knob.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                       CUDNN_TYPE_KNOB_TYPE, 1, &count, &type),
                              "reading a knob");
    if (read.ok()) {
      read = check(cudnnBackendGetAttribute(knob.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                            CUDNN_TYPE_INT64, 1, &count, &value),
                   "reading a knob");
    }
    if (!read.ok()) {
      return std::move(read).error();
    }
    name += fmt::format("_k{}={}", static_cast<int>(type), value);
  }
  return name;
}

struct Candidate {
  Descriptor plan;
  std::size_t workspace_bytes = 0;
  std::string engine;
};

/// The plan that a configuration makes, or why not.
Result<Candidate> try_out(const Descriptor& configuration, Dtype dtype,
                          const PlanningTarget& target) {
  auto engines =
      parts_of(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  if (!engines.ok()) {
    return std::move(engines).error();
  }
  const Descriptor& engine = engines.value().at(0);
  const Result<const char*> why = objection(engine, dtype);
  if (!why.ok()) {
    return why.error();
  }
  if (why.value() != nullptr) {
    return Error{Errc::kUnsupported, why.value()};
  }
  Builder builder(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  builder.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  target.aim(builder, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  Result<Descriptor> plan = builder.finalise();
  if (!plan.ok()) {
    return std::move(plan).error();
  }
  const auto bytes =
      values_of<std::int64_t>(plan.value(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1);
  if (!bytes.ok()) {
    return bytes.error();
  }
  const auto workspace = static_cast<std::size_t>(bytes.value().at(0));
  if (workspace > kWorkspaceBytesMax) {
    return Error{Errc::kUnsupported, fmt::format("it wants {} MiB of scratch", workspace >> 20)};
  }
  Result<std::string> name = name_of(engine, configuration);
  if (!name.ok()) {
    return std::move(name).error();
  }
  return Candidate{std::move(plan).value(), workspace, std::move(name).value()};
}

}  // namespace

Result<ConvPlan> ConvPlan::choose(const ConvShape& shape, ConvPass pass, Dtype dtype,
                                  const PlanningTarget& target) {
  const std::string what =
      fmt::format("the {} of {} in {}", to_string(pass), shape.text(), nn::name_of(dtype));
  Result<Descriptor> convolved = operation(shape, pass, dtype);
  if (!convolved.ok()) {
    return Error{Errc::kUnsupported, what + ": " + convolved.error().detail};
  }
  const Result<Descriptor> graph = graph_of(convolved.value(), target);
  if (!graph.ok()) {
    return Error{Errc::kUnsupported, what + ": " + graph.error().detail};
  }
  std::size_t offered = 0;
  std::string last = "none was offered";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    const auto found = configurations(graph.value(), mode, target);
    if (!found.ok()) {
      last = found.error().detail;
      continue;
    }
    for (const Descriptor& configuration : found.value()) {
      ++offered;
      Result<Candidate> candidate = try_out(configuration, dtype, target);
      if (candidate.ok()) {
        ConvPlan plan;
        plan.plan_ = std::move(candidate.value().plan);
        plan.workspace_bytes_ = candidate.value().workspace_bytes;
        plan.engine_ = std::move(candidate.value().engine);
        plan.rank_ = offered;
        return plan;
      }
      last = candidate.error().detail;
    }
  }
  return Error{Errc::kUnsupported, fmt::format("cuDNN has no engine for {}: {} offered, the last "
                                               "left out as {}",
                                               what, offered, last)};
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
