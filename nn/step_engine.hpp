#pragma once

// The port between the training loop and a device: forward and backward of one microbatch. One
// StepEngine belongs to one compute thread (or one GPU); different engines may run at the same
// time.

#include <cstddef>
#include <cstdint>
#include <span>

namespace mayfly::nn {

/// A sample in one pass over the training set; both numbers determine its augmentation.
struct SampleDraw {
  std::uint64_t sample = 0;
  std::uint64_t epoch = 0;
};

/// Samples of one microbatch, ready for the network. Views; owned by the loader.
struct Batch {
  std::span<const float> images;          ///< count x 3 x S x S (NCHW), normalised
  std::span<const std::uint16_t> labels;  ///< count
  /// If a DeviceEngine holds the training set: the samples, in place of `images`.
  std::span<const SampleDraw> draws = {};
  /// A different number for every batch that was announced with DeviceEngine::prefetch(); 0 for
  /// others.
  std::uint64_t id = 0;
};

/// The weights with which a microbatch is computed. All views stay valid and unchanged during the
/// call.
struct Weights {
  std::span<const float> parameters;
  std::span<const float> statistics;  ///< used by evaluate() only
  std::uint64_t version = 0;          ///< different for different values; has no other meaning
  /// A power of two by which an engine that stores gradients in fp16 multiplies them internally, so
  /// that small ones do not vanish (nn/dtype.hpp). Returned gradients are not scaled.
  float loss_scale = 1;
};

/// Called during backward when every gradient element from `offset` to the end of the flat
/// parameter array is final. Offsets only decrease and are borders of tensors; the last call has
/// offset 0.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  virtual void ready_from(std::size_t offset) = 0;
};

struct TrainResult {
  float loss = 0;             ///< mean over the microbatch, label smoothing included
  std::uint32_t correct = 0;  ///< top-1 hits
};

struct EvaluationResult {
  double loss_sum = 0;  ///< cross entropy without smoothing, summed over the samples
  std::uint32_t correct = 0;
};

class DeviceEngine;

class StepEngine {
 public:
  virtual ~StepEngine() = default;

  /// Computes the gradient of the microbatch's mean loss with respect to all parameters into
  /// `gradient` (parameter_count elements), and the microbatch's own batch-norm mean and unbiased
  /// variance into `statistics` (statistic_count). The batch must have exactly the engine's
  /// microbatch size. The result is a pure function of (weights, batch), the same bits on every
  /// thread and worker with the same instruction set. Allocates no memory.
  virtual TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                            std::span<float> gradient, std::span<float> statistics,
                            GradientSink& sink) = 0;

  /// Inference with running statistics on 1 to microbatch-size samples; each sample's result does
  /// not depend on the others.
  virtual EvaluationResult evaluate(const Weights& weights, const Batch& batch) = 0;

  /// Size of a training microbatch.
  [[nodiscard]] virtual std::uint32_t microbatch() const = 0;

  /// This engine with the operations of one that computes in the memory of a device
  /// (nn/device_engine.hpp). Null: it computes in host memory.
  [[nodiscard]] virtual DeviceEngine* on_device() { return nullptr; }
};

}  // namespace mayfly::nn
