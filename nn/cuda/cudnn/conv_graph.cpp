#include "nn/cuda/cudnn/conv_graph.hpp"

#include <deque>
#include <utility>
#include <vector>

namespace mayfly::nn::cuda::cudnn {
namespace {

// Any numbers that differ: plan and variant pack agree on them.
constexpr std::int64_t kX = 1;
constexpr std::int64_t kFilter = 2;
constexpr std::int64_t kY = 3;
constexpr std::int64_t kFirstSums = 4;
constexpr std::int64_t kSecondSums = 5;

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
    case ConvPass::kForwardSums:
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

/// The parts of a graph as they are made; the first that cannot be made is remembered.
class GraphParts {
 public:
  /// For use in what is made next; an empty one after a failure.
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

}  // namespace

Result<Descriptor> graph_of(const ConvShape& shape, ConvPass pass, Dtype dtype,
                            const PlanningTarget& target) {
  GraphParts parts;
  const Descriptor& x =
      parts.keep(tensor(kX, dtype, shape.images, shape.in_channels, shape.input_size));
  const Descriptor& filter =
      parts.keep(tensor(kFilter, dtype, shape.out_channels, shape.in_channels, shape.kernel));
  const Descriptor& y =
      parts.keep(tensor(kY, dtype, shape.images, shape.out_channels, shape.output_size));
  const OperationNames names = names_of(pass);
  parts.add(Builder(names.type)
                .set(names.convolution, parts.keep(convolution(shape)))
                .set(names.x, x)
                .set(names.filter, filter)
                .set(names.y, y)
                .set(names.alpha, 1.0F)
                .set(names.beta, 0.0F)
                .finalise());
  if (pass == ConvPass::kForwardSums) {
    parts.add(sums_of(y, parts.keep(channel_tensor(kFirstSums, shape.out_channels)),
                      parts.keep(channel_tensor(kSecondSums, shape.out_channels))));
  }
  return parts.graph(target);
}

Result<Descriptor> bound_tensors(const ConvShape& shape, ConvPass pass,
                                 const ConvTensors& tensors) {
  Sizes ids = {kX, kFilter, kY};
  std::vector<void*> places = {tensors.x, tensors.filter, tensors.y};
  if (pass == ConvPass::kForwardSums) {
    ids.insert(ids.end(), {kFirstSums, kSecondSums});
    places.insert(places.end(), {tensors.sums, tensors.sums + shape.out_channels});
  }
  return Builder(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
      .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, places)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, tensors.workspace)
      .finalise();
}

}  // namespace mayfly::nn::cuda::cudnn
