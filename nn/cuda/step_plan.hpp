#pragma once

// Private to nn/cuda: a training step and an evaluation as lists of operations on tensors, made
// from the description of a network before anything runs. Pure: it uses no device and no memory of
// one, so the lists can be checked, and executed on a CPU (nn/cuda/step_executor.hpp), where there
// is no GPU.
//
// From the forward to the backward pass a step keeps, for each convolution with its norm: the
// convolution's output ("raw"), norm and ReLU applied to it ("out"), one bit per element for the
// ReLU ("mask"), and the norm's factors. The backward pass overwrites raw with its own gradient.
// Weight gradients are computed before input gradients, so that the gradient of a tensor can use
// the memory of the tensor.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nn/cuda/conv_shape.hpp"
#include "nn/cuda/image_source.hpp"
#include "nn/cuda/kernels/kernels.hpp"
#include "nn/memory_plan.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cuda {

// The operations, each one or two kernels. `layer` is an index into StepPlan::layers. Every
// operation lists its tensors by tensors(), in no particular order.

/// All weights in the layout of the convolutions.
struct PackFilters {
  [[nodiscard]] std::array<TensorId, 0> tensors() const { return {}; }
};

struct StoreImages {
  TensorId from, to;
  [[nodiscard]] std::array<TensorId, 2> tensors() const { return {from, to}; }
};

/// The same, looked up in the set on the device.
struct GatherImages {
  TensorId draws, pixels, table, to;
  [[nodiscard]] std::array<TensorId, 4> tensors() const { return {draws, pixels, table, to}; }
};

/// y from x, or a gradient: x and y are defined by ConvPass, the filter is the layer's.
struct Convolve {
  std::size_t layer;
  ConvPass pass;
  TensorId x, y;
  TensorId workspace = kNoTensor;  ///< kNoTensor: none is needed
  [[nodiscard]] std::array<TensorId, 3> tensors() const { return {x, y, workspace}; }
};

/// The statistics of this microbatch, and the factors of its normalisation.
struct MeasureNorm {
  std::size_t layer;
  TensorId x, sums, factors;
  [[nodiscard]] std::array<TensorId, 3> tensors() const { return {x, sums, factors}; }
};

/// The factors of a normalisation by running statistics.
struct UseRunningNorm {
  std::size_t layer;
  TensorId factors;
  [[nodiscard]] std::array<TensorId, 1> tensors() const { return {factors}; }
};

/// out = ReLU(norm(x) + residual); the residual may have a norm of its own.
struct ApplyNorm {
  std::size_t layer;
  TensorId x, factors;
  TensorId residual, residual_factors;  ///< kNoTensor: none
  TensorId out;
  TensorId mask;  ///< kNoTensor in evaluation
  [[nodiscard]] std::array<TensorId, 6> tensors() const {
    return {x, factors, residual, residual_factors, out, mask};
  }
};

/// The option-A shortcut.
struct Downsample {
  ActivationShape from;
  TensorId x, out;
  [[nodiscard]] std::array<TensorId, 2> tensors() const { return {x, out}; }
};

struct DownsampleGradient {
  ActivationShape from;
  TensorId out_gradient, x_gradient;
  [[nodiscard]] std::array<TensorId, 2> tensors() const { return {out_gradient, x_gradient}; }
};

/// out = pooled ReLU(norm(x)).
struct MaxPool {
  ActivationShape from;
  TensorId x, factors, out, places;
  [[nodiscard]] std::array<TensorId, 4> tensors() const { return {x, factors, out, places}; }
};

/// The gradient of the norm's output, masked by the ReLU.
struct MaxPoolGradient {
  ActivationShape from;
  TensorId out_gradient, places, x_gradient;
  [[nodiscard]] std::array<TensorId, 3> tensors() const {
    return {out_gradient, places, x_gradient};
  }
};

/// Average pooling, linear layer, loss and hits.
struct Classify {
  TensorId x, memory, labels;
  [[nodiscard]] std::array<TensorId, 3> tensors() const { return {x, memory, labels}; }
};

struct ClassifyGradient {
  TensorId memory, x_gradient;
  [[nodiscard]] std::array<TensorId, 2> tensors() const { return {memory, x_gradient}; }
};

/// The gradients of the norm's parameters from g = mask (gradient + addend), and the factors for
/// ApplyNormGradient.
struct SumNormGradient {
  std::size_t layer;
  TensorId gradient;
  TensorId addend;  ///< kNoTensor: none
  TensorId mask;    ///< kNoTensor: masked already
  TensorId x;
  TensorId masked;  ///< where g goes; kNoTensor: nowhere
  TensorId sums, factors;
  [[nodiscard]] std::array<TensorId, 7> tensors() const {
    return {gradient, addend, mask, x, masked, sums, factors};
  }
};

/// The gradient of the norm's input, which overwrites that input.
struct ApplyNormGradient {
  std::size_t layer;
  TensorId gradient;
  TensorId mask;  ///< kNoTensor: masked already
  TensorId x, factors;
  [[nodiscard]] std::array<TensorId, 4> tensors() const { return {gradient, mask, x, factors}; }
};

/// a = a + b
struct AddGradient {
  std::uint64_t elements;
  TensorId a, b;
  [[nodiscard]] std::array<TensorId, 2> tensors() const { return {a, b}; }
};

/// Converts the weight gradients of layers [first, end) to the layout of the optimizer.
struct UnpackFilterGradients {
  std::size_t first_layer, end_layer;
  [[nodiscard]] std::array<TensorId, 0> tensors() const { return {}; }
};

using Operation = std::variant<PackFilters, StoreImages, GatherImages, Convolve, MeasureNorm,
                               UseRunningNorm, ApplyNorm, Downsample, DownsampleGradient, MaxPool,
                               MaxPoolGradient, Classify, ClassifyGradient, SumNormGradient,
                               ApplyNormGradient, AddGradient, UnpackFilterGradients>;

/// Operations [first, end) of a plan.
struct OperationRange {
  std::size_t first = 0;
  std::size_t end = 0;
};

/// A part of training after which more gradients are final.
struct Segment {
  OperationRange operations;
  std::size_t ready_from = 0;  ///< elements from here to the previous segment's are new
};

/// A convolution with the norm behind it, and the places of its values in the flat arrays.
struct Layer {
  ConvShape conv;
  ActivationShape out;
  std::size_t weight = 0;  ///< offsets in elements, of parameters and of their gradients
  std::size_t scale = 0;
  std::size_t shift = 0;
  std::size_t mean = 0;  ///< of statistics
  std::size_t variance = 0;
};

/// Tensors that live as long as the engine, and those that are copied from or to the host.
struct ResidentTensors {
  TensorId parameters = kNoTensor;  ///< fp32, flat
  TensorId running_statistics = kNoTensor;
  TensorId gradient = kNoTensor;  ///< fp32, flat
  TensorId momentum = kNoTensor;  ///< fp32, flat, if the state is kept
  TensorId batch_statistics = kNoTensor;
  TensorId filters = kNoTensor;           ///< packed
  TensorId filter_gradients = kNoTensor;  ///< packed
  TensorId filter_table = kNoTensor;      ///< StepPlan::filters
  TensorId loss_input = kNoTensor;
  TensorId loss_output = kNoTensor;
  TensorId set_pixels = kNoTensor;    ///< of all images, if there is a set; and
  TensorId set_table = kNoTensor;     ///< a datasets::Normaliser::Table
  TensorId train_draws = kNoTensor;   ///< if there is a set; needed until GatherImages
  TensorId train_images = kNoTensor;  ///< else: NCHW fp32, as loaded; needed until StoreImages
  TensorId next_images = kNoTensor;   ///< else: those of the next step, meanwhile
  TensorId train_labels = kNoTensor;
  TensorId evaluate_images = kNoTensor;
  TensorId evaluate_labels = kNoTensor;
};

struct StepPlan {
  Dtype dtype = Dtype::kFp32;
  std::optional<ResidentSet> set;  ///< the training set, if it is on the device
  std::vector<Layer> layers;       ///< in the order of convolutions_of()
  ClassifierShape classifier;
  std::size_t classifier_weight = 0;  ///< offset in elements
  std::size_t classifier_bias = 0;

  std::vector<Operation> operations;
  OperationRange load;            ///< after new weights were copied to the device
  std::vector<Segment> training;  ///< in order; the last is ready from 0
  OperationRange evaluation;

  std::vector<Filter> filters;  ///< of the layers; first_block set
  std::uint32_t filter_blocks = 0;

  MemoryPlan memory{kGpuPlacement};
  ResidentTensors resident;
};

struct StepPlanOptions {
  Dtype dtype = Dtype::kFp32;
  /// Whether momentum is on the device as well, for updates there.
  bool keeps_state = false;
  /// The training set on the device; not set: images come from the host.
  std::optional<ResidentSet> set = {};
  /// A segment ends at the first layer where it has at least this many gradients.
  std::size_t segment_elements = std::size_t{1} << 18;
  /// Bytes of scratch memory that a convolution needs; not set: none.
  std::function<std::size_t(const ConvShape&, ConvPass)> workspace_bytes = {};
};

/// Plans a network for microbatches of `microbatch` images (evaluation for as many or fewer). The
/// memory is placed; the step needs memory.total() bytes.
[[nodiscard]] StepPlan make_step_plan(const Model& model, std::uint32_t microbatch,
                                      const StepPlanOptions& options);

}  // namespace mayfly::nn::cuda
