#pragma once

// The port between the training loop and a device: forward and backward of one microbatch. One
// StepEngine belongs to one compute thread (or one GPU); different engines may run at the same
// time.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
  /// If the engine holds the training set in device memory: the samples, in place of `images`.
  std::span<const SampleDraw> draws = {};
  /// A different number for every batch that was announced with expect(); 0 for others.
  std::uint64_t id = 0;
};

/// The weights with which a microbatch is computed. All views stay valid and unchanged during the
/// call.
struct Weights {
  std::span<const float> parameters;
  std::span<const float> statistics;  ///< used by evaluate() only
  std::uint64_t version = 0;          ///< different for different values; has no other meaning
  /// A power of two by which an engine that stores gradients in fp16 multiplies them internally, so
  /// that small ones do not vanish (nn/loss_scale.hpp). Returned gradients are not scaled.
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

/// The device memory in which an engine can leave gradients; constant during the engine's life.
struct DeviceGradient {
  int device = 0;                   ///< number of the device
  bool is_shared = false;           ///< another worker of this machine uses the device, too
  const float* gradient = nullptr;  ///< parameter_count elements of the device's memory
  /// A cudaStream_t. Work that is queued on it when the sink is called runs after the gradient is
  /// complete and before the next one is written.
  void* stream = nullptr;
};

class DeviceOptimizer;

class StepEngine {
 public:
  virtual ~StepEngine() = default;

  /// Computes the gradient of the microbatch's mean loss with respect to all parameters into
  /// `gradient` (parameter_count elements), and the microbatch's own batch-norm mean and unbiased
  /// variance into `statistics` (statistic_count). The batch must have exactly the engine's
  /// microbatch size. The result is a pure function of (weights, batch), the same bits on every
  /// thread and worker with the same instruction set. Allocates no memory. If there is a
  /// device_gradient(), an empty `gradient` leaves the gradient there, and the sink is called as
  /// soon as the work that computes it is queued on the stream.
  virtual TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                            std::span<float> gradient, std::span<float> statistics,
                            GradientSink& sink) = 0;

  /// Whether expect() is useful because images are copied from the host to a device. Constant
  /// during the engine's life.
  [[nodiscard]] virtual bool prefetches_input() const { return false; }

  /// Announces the batch of a later train(), so that the engine may copy it to its device during
  /// the next train(); the images stay valid until that call returns. If the later batch has
  /// another id, its images are copied as usual.
  virtual void expect(const Batch& /*next*/) {}

  /// Inference with running statistics on 1 to microbatch-size samples; each sample's result does
  /// not depend on the others.
  virtual EvaluationResult evaluate(const Weights& weights, const Batch& batch) = 0;

  /// Nothing: the engine computes in host memory.
  [[nodiscard]] virtual std::optional<DeviceGradient> device_gradient() const { return {}; }

  /// The optimizer that updates the weights in the engine's memory, owned by the engine. Null: the
  /// weights are updated on the host.
  [[nodiscard]] virtual DeviceOptimizer* optimizer() { return nullptr; }

  /// Whether train() may be given draws instead of images, because the training set is in the
  /// memory of the engine's device. The same for the engine's whole life.
  [[nodiscard]] virtual bool holds_training_set() const { return false; }

  /// A line for the log about the way in which the engine computes; empty if there is nothing to
  /// report.
  [[nodiscard]] virtual std::string remark() const { return {}; }

  /// Properties that its bits depend on and that are known only after it was created, for the job's
  /// fingerprint; empty if there are none.
  [[nodiscard]] virtual std::string engines() const { return {}; }

  /// Lines for the log about operations that its device refused, and their replacements.
  [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }

  /// Size of a training microbatch.
  [[nodiscard]] virtual std::uint32_t microbatch() const = 0;
};

}  // namespace mayfly::nn
