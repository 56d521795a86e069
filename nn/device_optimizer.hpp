#pragma once

// The port to an engine that keeps weights and momentum in the memory of its device and updates
// them there. Whoever trains has the state on the host, too, and knows which of the two is newer
// (engine/training/host_copy).

#include <cstddef>
#include <cstdint>
#include <span>

#include "nn/optimizer.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn {

/// One update of weights and momentum, and what the running statistics become.
struct DeviceUpdate {
  /// Its version is that before the update. Parameters are read only if the device has another one;
  /// the statistics are those after the update.
  Weights weights;
  std::span<const float> momentum;  ///< read only if the device has that of another version
  SgdOptions options;
  float learning_rate = 0;
  std::uint64_t version = 0;  ///< after the update
};

enum class DevicePart { kParameters, kMomentum };

class DeviceOptimizer {
 public:
  virtual ~DeviceOptimizer() = default;

  /// Memory of the device, one element per parameter: where update() wants the mean gradient. The
  /// engine's own gradients go there as well; the engine's stream keeps all of it in order.
  [[nodiscard]] virtual float* mean_gradient() = 0;
  /// Gives the engine's stream what nn::sgd_update() does on the host, to its bits, and does not
  /// wait for it. No microbatch is under way. The engine's thread.
  virtual void update(const DeviceUpdate& update) = 0;
  /// A step without an update: what the device has of the state of version `from` is that of `to`.
  /// No microbatch is under way. The engine's thread.
  virtual void keep(std::uint64_t from, std::uint64_t to) = 0;
  /// Copies elements [first, first + to.size()) to the host, as the last update() left them, and
  /// waits for that. Any thread, microbatches may be under way; not during update().
  virtual void fetch(DevicePart part, std::size_t first, std::span<float> to) = 0;
};

}  // namespace mayfly::nn
