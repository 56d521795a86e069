#pragma once

// The port to an engine that computes in the memory of a device: its functions beyond those of a
// StepEngine. It may keep the training set, so that microbatches contain no images; it can leave
// gradients on the device, for sums there; and it may keep weights and momentum and update them.
// The trainer also has the state on the host and knows which of the two is newer
// (engine/network/host_copy).

#include <cstddef>
#include <cstdint>
#include <span>

#include "nn/optimizer.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn {

/// The device memory in which an engine leaves gradients; constant during the engine's life.
struct DeviceGradient {
  int device = 0;                   ///< number of the device
  bool is_shared = false;           ///< another worker of this machine uses the device, too
  const float* gradient = nullptr;  ///< parameter_count elements of the device's memory
  /// A cudaStream_t. Work that is queued on it when the sink is called runs after the gradient is
  /// complete and before the next one is written.
  void* stream = nullptr;
};

/// One update of weights and momentum, with the running statistics after it.
struct DeviceUpdate {
  /// The state before the update, except that the statistics are those after it. The parameters are
  /// read only if the device holds another version.
  Weights weights;
  std::span<const float> momentum;  ///< read only if the device holds another version
  SgdOptions options;
  float learning_rate = 0;
  std::uint64_t version = 0;  ///< after the update
};

enum class DevicePart { kParameters, kMomentum };

class DeviceOptimizer {
 public:
  virtual ~DeviceOptimizer() = default;

  /// Device memory with one element per parameter, from which update() reads the mean gradient. The
  /// engine's own gradients are written there as well; the engine's stream orders all accesses.
  [[nodiscard]] virtual float* mean_gradient() = 0;
  /// Queues the update on the engine's stream and does not wait for it. It computes the bits of
  /// nn::sgd_update() on the host. No microbatch may be running. The engine's thread.
  virtual void update(const DeviceUpdate& update) = 0;
  /// A step without an update: the device's part of the state of version `from` becomes that of
  /// version `to`. No microbatch may be running. The engine's thread.
  virtual void keep(std::uint64_t from, std::uint64_t to) = 0;
  /// Copies elements [first, first + to.size()) to the host, as the last update() left them, and
  /// waits for the copy. Any thread; microbatches may be running, but not update().
  virtual void fetch(DevicePart part, std::size_t first, std::span<float> to) = 0;
};

/// train() of such an engine accepts an empty `gradient`, which leaves the gradient on the device;
/// the sink is then called as soon as the work that computes it is queued on the stream. Unless
/// stated otherwise, functions are called on the engine's thread.
class DeviceEngine : public StepEngine {
 public:
  [[nodiscard]] DeviceEngine* on_device() final { return this; }

  /// Whether the training set is in the device's memory: then train() takes draws, else images.
  /// Constant during the engine's life; any thread.
  [[nodiscard]] virtual bool holds_training_set() const = 0;

  /// Announces the batch of a later train(), so that its images are copied to the device during the
  /// next train(); they stay valid until that call returns. If the later batch has another id, its
  /// images are copied as usual. Only without holds_training_set().
  virtual void prefetch(const Batch& next) = 0;

  /// Any thread.
  [[nodiscard]] virtual DeviceGradient gradient() const = 0;

  /// The optimizer that updates the weights in the device's memory, owned by the engine. Null: the
  /// weights are updated on the host. Any thread.
  [[nodiscard]] virtual DeviceOptimizer* optimizer() = 0;
};

}  // namespace mayfly::nn
