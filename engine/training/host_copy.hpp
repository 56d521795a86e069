#pragma once

// Parameters and momentum on the host where the newest are in the memory of a GPU, which updates
// them there: they come here when somebody reads them. Everything else in a state (statistics,
// exponents, the number of the step) is always here. Without a GPU that updates, nothing is ever
// brought. Trainer thread only.

#include <cstddef>
#include <span>

#include "nn/device_optimizer.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// Where the newest parameters and momentum are; the compute pool with the device behind it.
class StateOnDevice {
 public:
  virtual ~StateOnDevice() = default;

  /// Elements [first, first + to.size()) of what the device's last update made, or is still making.
  /// Blocks until they are here. A device that fails ends the process (base/gpu_failure.hpp).
  virtual void fetch(nn::DevicePart part, std::size_t first, std::span<float> to) = 0;
  /// The state that comes is another one, even if it is of the same step as the last: engines load
  /// it. No microbatch of a step that goes on is under way.
  virtual void state_replaced() = 0;
};

class HostCopy {
 public:
  /// `state` is whole. Both outlive this, and nobody else writes parameters or momentum of `state`
  /// without saying so.
  HostCopy(nn::ModelState& state, StateOnDevice& device) : state_(state), device_(device) {}

  /// The device has made an update: what is here is that of the step before.
  void leave_behind();
  /// A step was counted in `state` without an update: it is another slice's turn.
  void step_kept() { turn_behind_ = momentum_behind_; }
  /// Somebody has put another whole state here. Engines load it, even if it has the number of the
  /// one they know.
  void replaced();

  /// Brings what StateParts::turn_hash() reads and is not here yet. Blocks until it is here;
  /// microbatches may be under way.
  void bring_turn();
  /// Brings the rest, too: momentum in one piece, also what of it is here already.
  void bring_all();

 private:
  void bring_parameters();

  nn::ModelState& state_;
  StateOnDevice& device_;
  bool parameters_behind_ = false;
  bool momentum_behind_ = false;  // all of it but, perhaps, the slice whose turn it is
  bool turn_behind_ = false;      // that slice
};

}  // namespace mayfly::engine
