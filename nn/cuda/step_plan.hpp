#pragma once

// Private to nn/cuda: a training step and an evaluation as lists of operations on tensors, made
// from the description of a network before anything runs. Pure: no device, no memory. So the lists
// can be checked, and carried out on a CPU (nn/cuda/step_executor.hpp), where there is no GPU.
//
// What a step keeps of a convolution with its norm, from forward to backward: the convolution's
// output ("raw"), norm and ReLU applied to it ("out"), one bit per element for the ReLU ("mask"),
// and the norm's factors. Backward overwrites raw by its own gradient. Weight gradients come before
// input gradients, so that the gradient of a tensor can lie where the tensor was.
//
// Where a convolution can be had that also sums what the norm behind it wants (ConvPass), it takes
// the place of both the convolution and the norm's pass over its output.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nn/cuda/conv_shape.hpp"
#include "nn/cuda/kernels/kernels.hpp"
#include "nn/cuda/training_set.hpp"
#include "nn/memory_plan.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cuda {

// The operations, each one or two kernels. `layer` is an index into StepPlan::layers. Every
// operation lists its tensors by tensors(), in no particular order.

/// All weights as convolutions want them.
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

/// y from x, or a gradient: x and y are what ConvPass says, the filter is the layer's.
struct Convolve {
  std::size_t layer;
  ConvPass pass;
  TensorId x, y;
  TensorId workspace = kNoTensor;  ///< kNoTensor: it needs none
  TensorId totals = kNoTensor;     ///< what a fused pass sums
  TensorId norm_x = kNoTensor;     ///< of ConvPass::kInputGradientSums
  TensorId norm_factors = kNoTensor;
  [[nodiscard]] std::array<TensorId, 6> tensors() const {
    return {x, y, workspace, totals, norm_x, norm_factors};
  }
};

/// The statistics of this microbatch, and the factors to normalise by them.
struct MeasureNorm {
  std::size_t layer;
  TensorId x, sums, factors;
  [[nodiscard]] std::array<TensorId, 3> tensors() const { return {x, sums, factors}; }
};

/// The same behind a convolution that has summed.
struct MeasureNormTotals {
  std::size_t layer;
  TensorId totals, factors;
  [[nodiscard]] std::array<TensorId, 2> tensors() const { return {totals, factors}; }
};

/// The factors to normalise by running statistics.
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

/// Option A.
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

/// Of g = mask (gradient + addend): the gradients of the norm's parameters, and the factors for
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

/// The same behind a convolution that has masked and summed.
struct DeriveNormTotals {
  std::size_t layer;
  TensorId totals, factors;
  [[nodiscard]] std::array<TensorId, 2> tensors() const { return {totals, factors}; }
};

/// The gradient of the norm's input, which takes the place of that input.
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

/// The weight gradients of layers [first, end) to where the optimizer expects them.
struct UnpackFilterGradients {
  std::size_t first_layer, end_layer;
  [[nodiscard]] std::array<TensorId, 0> tensors() const { return {}; }
};

using Operation =
    std::variant<PackFilters, StoreImages, GatherImages, Convolve, MeasureNorm, MeasureNormTotals,
                 UseRunningNorm, ApplyNorm, Downsample, DownsampleGradient, MaxPool,
                 MaxPoolGradient, Classify, ClassifyGradient, SumNormGradient, ApplyNormGradient,
                 DeriveNormTotals, AddGradient, UnpackFilterGradients>;

/// Operations [first, end) of a plan.
struct OperationRange {
  std::size_t first = 0;
  std::size_t end = 0;
};

/// A part of training after which more gradients are final.
struct Segment {
  OperationRange operations;
  std::size_t ready_from = 0;  ///< in elements: from here to the previous segment's they are new
};

/// A convolution with the norm behind it, and where its numbers are in the flat arrays.
struct Layer {
  ConvShape conv;
  ActivationShape out;
  std::size_t weight = 0;  ///< offsets in elements, of parameters and of their gradients
  std::size_t scale = 0;
  std::size_t shift = 0;
  std::size_t mean = 0;  ///< of statistics
  std::size_t variance = 0;
};

/// Tensors that live as long as the engine, and those at its doors.
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
  OperationRange load;            ///< after new weights have come
  std::vector<Segment> training;  ///< in order; the last is ready from 0
  OperationRange evaluation;

  std::vector<Filter> filters;  ///< of the layers; first_block set
  std::uint32_t filter_blocks = 0;

  MemoryPlan memory{kGpuPlacement};
  ResidentTensors resident;
};

struct StepPlanOptions {
  Dtype dtype = Dtype::kFp32;
  /// Momentum is on the device, too, for updates there.
  bool keeps_state = false;
  /// To be on the device; not set: images come from the host.
  std::optional<ResidentSet> set = {};
  /// A segment ends at the first layer where it has so many gradients.
  std::size_t segment_elements = std::size_t{1} << 18;
  /// Scratch that a convolution needs, in bytes; not set: none.
  std::function<std::size_t(const ConvShape&, ConvPass)> workspace_bytes = {};
  /// Whether a fused pass can be had; not set: none can.
  std::function<bool(const ConvShape&, ConvPass)> has_fused = {};
};

/// Plans a network for whole microbatches of `microbatch` images (evaluation for as many or fewer).
/// The memory is placed: bytes needed are memory.total().
[[nodiscard]] StepPlan make_step_plan(const Model& model, std::uint32_t microbatch,
                                      const StepPlanOptions& options);

}  // namespace mayfly::nn::cuda
