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

/// A sample as one pass over the training set sees it; both numbers decide its augmentation.
struct SampleDraw {
  std::uint64_t sample = 0;
  std::uint64_t epoch = 0;
};

/// Samples of one microbatch, ready for the network. Views; owned by the loader.
struct Batch {
  std::span<const float> images;          ///< count x 3 x S x S (NCHW), normalised
  std::span<const std::uint16_t> labels;  ///< count
  /// Where the engine holds the training set: which of it, instead of images. Else empty.
  std::span<const SampleDraw> draws = {};
  /// Of a batch that expect() is told of: another one for every batch. 0: nobody was told.
  std::uint64_t id = 0;
};

/// The weights a microbatch is computed with. All views stay valid and unchanged during the call.
struct Weights {
  std::span<const float> parameters;
  std::span<const float> statistics;  ///< used by evaluate() only
  std::uint64_t version = 0;          ///< other values have another one; nothing else is in it
  /// A power of two: what gradients are times inside of an engine that stores them in fp16, so that
  /// small ones are not lost there (nn/loss_scale.hpp). Gradients that come out are not.
  float loss_scale = 1;
};

/// Told, during backward, that every gradient element from `offset` to the end of the flat
/// parameter array is final. Offsets only fall; the last call says 0. Always called on tensor
/// borders.
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

/// Where an engine of a device can leave gradients; the same for the engine's whole life.
struct DeviceGradient {
  int device = 0;                   ///< number of the device
  bool is_shared = false;           ///< another worker of this machine uses it, too
  const float* gradient = nullptr;  ///< parameter_count elements of the device's memory
  /// A cudaStream_t. What it is given when the sink is told something happens after the gradient is
  /// there and before the next one comes.
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
  /// thread and worker with the same instruction set. Allocates nothing. Where there is a
  /// device_gradient(), an empty `gradient` leaves it there, and the sink is told as soon as the
  /// stream has been given what computes it.
  virtual TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                            std::span<float> gradient, std::span<float> statistics,
                            GradientSink& sink) = 0;

  /// Whether expect() is of use: images come to a device from the host. The same for the engine's
  /// whole life.
  [[nodiscard]] virtual bool prefetches_input() const { return false; }

  /// Tells what a later train() will probably be given, before the train() during which the engine
  /// may bring it to its device; its images stay valid until that call returns. The batch that is
  /// given then has the same id, or its images are brought as usual.
  virtual void expect(const Batch& /*next*/) {}

  /// Inference with running statistics on 1 to microbatch-size samples; each sample's result does
  /// not depend on the others.
  virtual EvaluationResult evaluate(const Weights& weights, const Batch& batch) = 0;

  /// Nothing: the engine computes in host memory.
  [[nodiscard]] virtual std::optional<DeviceGradient> device_gradient() const { return {}; }

  /// Updates the weights where the engine keeps them; goes with the engine. Null: they come from
  /// the host.
  [[nodiscard]] virtual DeviceOptimizer* optimizer() { return nullptr; }

  /// Whether train() may be given draws instead of images, because the training set is in the
  /// memory of the engine's device. The same for the engine's whole life.
  [[nodiscard]] virtual bool holds_training_set() const { return false; }

  /// A line for the log about how it computes, if somebody should know; else empty.
  [[nodiscard]] virtual std::string remark() const { return {}; }

  /// What its bits depend on that nobody knew before it was made, for the job's fingerprint; empty:
  /// nothing.
  [[nodiscard]] virtual std::string engines() const { return {}; }

  /// Lines for the log about what its device refused, and what is done instead.
  [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }

  /// Size of a training microbatch.
  [[nodiscard]] virtual std::uint32_t microbatch() const = 0;
};

}  // namespace mayfly::nn
