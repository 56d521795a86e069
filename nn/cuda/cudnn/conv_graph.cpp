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

}  // namespace mayfly::nn::cuda::cudnn
