#include "nn/cuda/cudnn/conv_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "nn/cuda/cudnn/engine_config.hpp"

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

Result<Descriptor> graph_of(const ConvShape& shape, ConvPass pass, Dtype dtype,
                            const PlanningTarget& target) {
  const Result<Descriptor> convolved = operation(shape, pass, dtype);
  if (!convolved.ok()) {
    return convolved.error();
  }
  Builder builder(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  builder.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, convolved.value());
  target.aim(builder, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  return builder.finalise();
}

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

Result<ConvPlan> ConvPlan::finalised(const Descriptor& configuration, Dtype dtype,
                                     const PlanningTarget& target) {
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
    const auto found = offered_for(graph.value(), mode, target);
    if (!found.ok()) {
      last = found.error().detail;
      continue;
    }
    for (const Descriptor& configuration : found.value()) {
      ++offered;
      Result<ConvPlan> plan = finalised(configuration, dtype, target);
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
  Result<ConvPlan> plan = finalised(configuration.value(), dtype, target);
  return plan.ok() ? std::move(plan) : refused(plan.error());
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
