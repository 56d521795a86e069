#pragma once

// The port to an engine that keeps weights and momentum in the memory of its device and updates
// them there. The trainer also has the state on the host and knows which of the two is newer
// (engine/training/host_copy).

#include <cstddef>
#include <cstdint>
#include <span>

#include "nn/optimizer.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn {

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

}  // namespace mayfly::nn
