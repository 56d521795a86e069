#include "nn/cuda/cudnn/conv_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/try_assign.hpp"

namespace mayfly::nn::cuda::cudnn {
namespace {

// Any numbers that differ: plan and variant pack agree on them.
constexpr std::int64_t kX = 1;
constexpr std::int64_t kFilter = 2;
constexpr std::int64_t kY = 3;
constexpr std::int64_t kFirstSums = 4;
constexpr std::int64_t kSecondSums = 5;
constexpr std::int64_t kNormX = 6;
constexpr std::int64_t kNormMean = 7;
constexpr std::int64_t kNormInverse = 8;
constexpr std::int64_t kNormGamma = 9;
constexpr std::int64_t kNormBeta = 10;
constexpr std::int64_t kUnusedFirst = 11;  // three that cuDNN wants to write
constexpr std::int64_t kUnused = 3;
// What is never in memory.
constexpr std::int64_t kConvolved = 100;
constexpr std::int64_t kCentred = 101;
constexpr std::int64_t kNormalised = 102;
constexpr std::int64_t kScaled = 103;
constexpr std::int64_t kNormed = 104;

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

enum class Where { kMemory, kNowhere };

/// A tensor whose second dimension, the channels, lies innermost.
Result<Descriptor> tensor(std::int64_t id, Dtype dtype, std::int64_t outer, std::int64_t channels,
                          std::int64_t size, Where where = Where::kMemory) {
  return Builder(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, Sizes{outer, channels, size, size})
      .set(CUDNN_ATTR_TENSOR_STRIDES, Sizes{channels * size * size, 1, channels * size, channels})
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, where == Where::kNowhere)
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
    case ConvPass::kForwardSums:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvPass::kInputGradient:
    case ConvPass::kInputGradientSums:
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

/// The parts of a graph as they are made; the first that cannot be made is remembered.
class GraphParts {
 public:
  /// The descriptor for use in the next one; empty after a failure.
  const Descriptor& keep(Result<Descriptor> part) {
    if (!part.ok() && outcome_.ok()) {
      outcome_ = part.error();
    }
    return kept_.emplace_back(part.ok() ? std::move(part).value() : Descriptor());
  }
  void add(Result<Descriptor> operation) {
    if (operation.ok()) {
      operations_.push_back(std::move(operation).value());
    } else if (outcome_.ok()) {
      outcome_ = operation.error();
    }
  }

  [[nodiscard]] Result<Descriptor> graph(const PlanningTarget& target) const {
    if (!outcome_.ok()) {
      return outcome_.error();
    }
    Builder builder(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    builder.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
    target.aim(builder, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
    return builder.finalise();
  }

 private:
  std::deque<Descriptor> kept_;  // references to them stay good
  std::vector<Descriptor> operations_;
  Result<void> outcome_;
};

/// One number of each channel.
Result<Descriptor> channel_tensor(std::int64_t id, std::int64_t channels) {
  return tensor(id, Dtype::kFp32, 1, channels, 1);
}

/// The sums of y and of y * y.
Result<Descriptor> sums_of(const Descriptor& y, const Descriptor& first, const Descriptor& second) {
  return Builder(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, first)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, second)
      .finalise();
}

Result<Descriptor> pointwise(cudnnPointwiseMode_t mode) {
  return Builder(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
      .set(CUDNN_ATTR_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .finalise();
}

/// What follows an input gradient for the norm before it, as cuDNN wants it said: the norm again,
/// up to what its ReLU saw; the gradient where that is above 0; and the sums of its parameters'
/// gradients.
class NormGradient {
 public:
  NormGradient(GraphParts& parts, const ConvShape& shape) : parts_(parts), shape_(shape) {}

  /// `convolved` becomes `g`.
  void add(const Descriptor& convolved, const Descriptor& g, Dtype dtype) {
    const Descriptor& x =
        parts_.keep(tensor(kNormX, dtype, shape_.images, shape_.in_channels, shape_.input_size));
    const Descriptor& mean = channels(kNormMean);
    const Descriptor& inverse = channels(kNormInverse);
    const Descriptor& gamma = channels(kNormGamma);
    const Descriptor& centred = combine(CUDNN_POINTWISE_SUB, x, mean, kCentred);
    const Descriptor& normalised = combine(CUDNN_POINTWISE_MUL, centred, inverse, kNormalised);
    const Descriptor& scaled = combine(CUDNN_POINTWISE_MUL, normalised, gamma, kScaled);
    const Descriptor& normed = combine(CUDNN_POINTWISE_ADD, scaled, channels(kNormBeta), kNormed);
    parts_.add(Builder(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                        parts_.keep(pointwise(CUDNN_POINTWISE_RELU_BWD)))
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, normed)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, convolved)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, g)
                   .finalise());
    parts_.add(
        Builder(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR)
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT)
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, mean)
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, inverse)
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, gamma)
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x)
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, g)
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, channels(kFirstSums))
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, channels(kSecondSums))
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, channels(kUnusedFirst))
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, channels(kUnusedFirst + 1))
            .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, channels(kUnusedFirst + 2))
            .finalise());
  }

 private:
  const Descriptor& channels(std::int64_t id) {
    return parts_.keep(channel_tensor(id, shape_.in_channels));
  }
  /// An activation and a number of each channel.
  const Descriptor& combine(cudnnPointwiseMode_t mode, const Descriptor& a, const Descriptor& b,
                            std::int64_t id) {
    const Descriptor& out = parts_.keep(tensor(id, Dtype::kFp32, shape_.images, shape_.in_channels,
                                               shape_.input_size, Where::kNowhere));
    parts_.add(Builder(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parts_.keep(pointwise(mode)))
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out)
                   .finalise());
    return out;
  }

  GraphParts& parts_;
  const ConvShape& shape_;
};

/// The graph of a pass: its operations, and those that a fused pass adds. Activations, filter and
/// gradients are of `dtype`, sums and the factors of norms are fp32. Fails as cuDNN does for an
/// impossible convolution.
Result<Descriptor> graph_of(const ConvShape& shape, ConvPass pass, Dtype dtype,
                            const PlanningTarget& target) {
  GraphParts parts;
  const Descriptor& x =
      parts.keep(tensor(kX, dtype, shape.images, shape.in_channels, shape.input_size));
  const Descriptor& filter =
      parts.keep(tensor(kFilter, dtype, shape.out_channels, shape.in_channels, shape.kernel));
  const Descriptor& y =
      parts.keep(tensor(kY, dtype, shape.images, shape.out_channels, shape.output_size));
  const bool sums_gradient = pass == ConvPass::kInputGradientSums;
  const Descriptor& convolved =
      sums_gradient ? parts.keep(tensor(kConvolved, Dtype::kFp32, shape.images, shape.in_channels,
                                        shape.input_size, Where::kNowhere))
                    : x;
  const OperationNames names = names_of(pass);
  parts.add(Builder(names.type)
                .set(names.convolution, parts.keep(convolution(shape)))
                .set(names.x, convolved)
                .set(names.filter, filter)
                .set(names.y, y)
                .set(names.alpha, 1.0F)
                .set(names.beta, 0.0F)
                .finalise());
  if (pass == ConvPass::kForwardSums) {
    parts.add(sums_of(y, parts.keep(channel_tensor(kFirstSums, shape.out_channels)),
                      parts.keep(channel_tensor(kSecondSums, shape.out_channels))));
  }
  if (sums_gradient) {
    NormGradient(parts, shape).add(convolved, x, dtype);
  }
  return parts.graph(target);
}

/// The addresses of a graph's tensors, for a plan that was made from it.
Result<Descriptor> bound_tensors(const ConvShape& shape, ConvPass pass,
                                 const ConvTensors& tensors) {
  Sizes ids = {kX, kFilter, kY};
  std::vector<void*> places = {tensors.x, tensors.filter, tensors.y};
  if (pass == ConvPass::kForwardSums) {
    ids.insert(ids.end(), {kFirstSums, kSecondSums});
    places.insert(places.end(), {tensors.sums, tensors.sums + shape.out_channels});
  }
  if (pass == ConvPass::kInputGradientSums) {
    float* const sums = tensors.sums;
    const std::int64_t channels = shape.in_channels;
    const NormFactors& norm = tensors.norm;
    ids.insert(ids.end(),
               {kFirstSums, kSecondSums, kNormX, kNormMean, kNormInverse, kNormGamma, kNormBeta});
    places.insert(places.end(), {sums, sums + channels, const_cast<void*>(tensors.norm_x),
                                 norm.mean, norm.inverse, norm.gamma, norm.beta});
    for (std::int64_t i = 0; i < kUnused; ++i) {
      ids.push_back(kUnusedFirst + i);
      places.push_back(sums + (2 + i) * channels);
    }
  }
  return Builder(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
      .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, places)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, tensors.workspace)
      .finalise();
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
