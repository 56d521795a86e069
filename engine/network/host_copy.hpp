#pragma once

// The host's copy of parameters and momentum where a GPU updates them in its own memory: they are
// fetched when they are read. Everything else in a state (statistics, exponents, the number of the
// step) is always up to date on the host. Without a GPU that updates nothing is fetched. Trainer
// thread only.

#include <cstddef>
#include <span>

#include "nn/device_engine.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// The device with the newest parameters and momentum; the compute pool implements it.
class StateOnDevice {
 public:
  virtual ~StateOnDevice() = default;

  /// Copies elements [first, first + to.size()) of the result of the device's last update, which
  /// may still be running. Blocks until they are copied. A device that fails ends the process
  /// (base/gpu_facts.hpp).
  virtual void fetch(nn::DevicePart part, std::size_t first, std::span<float> to) = 0;
  /// The state on the host was replaced, perhaps by one of the same step: engines must load it. No
  /// microbatch of a step that will be continued is being computed.
  virtual void state_replaced() = 0;
};

class HostCopy {
 public:
  /// `state` is complete. Both arguments outlive this object. Other code that writes parameters or
  /// momentum of `state` must call replaced().
  HostCopy(nn::ModelState& state, StateOnDevice& device) : state_(state), device_(device) {}

  /// The device has made an update: the host's copy is that of the step before.
  void leave_behind();
  /// A step was counted in `state` without an update: the next slice of the momentum is due.
  void step_kept() { turn_behind_ = momentum_behind_; }
  /// The state was replaced by another complete one. Engines load it, even if it has the step
  /// number of the one that they have.
  void replaced();

  /// Fetches what StateParts::turn_hash() reads, as far as the host's copy is old. Blocks;
  /// microbatches may be running.
  void bring_turn();
  /// Fetches everything else as well: all of the momentum in one piece.
  void bring_all();

 private:
  void bring_parameters();

  nn::ModelState& state_;
  StateOnDevice& device_;
  bool parameters_behind_ = false;
  bool momentum_behind_ = false;  // all of it except, perhaps, the slice that is due
  bool turn_behind_ = false;      // the slice that is due
};

}  // namespace mayfly::engine
