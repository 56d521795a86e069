#pragma once

// The host's copy of parameters and momentum that a GPU updates in its own memory: they are fetched
// when they are read. Everything else in a state (statistics, exponents, the number of the step) is
// always up to date on the host. If no GPU updates the state, nothing is fetched. Trainer thread
// only.

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
  /// `state` is complete. Both arguments outlive this object. Code that writes parameters or
  /// momentum of `state` must call replaced().
  HostCopy(nn::ModelState& state, StateOnDevice& device) : state_(state), device_(device) {}

  /// To be called when the device has made an update: the host's copy is that of the previous step.
  void leave_behind();
  /// To be called when a step was committed without an update: turn_hash() reads the next slice of
  /// the momentum.
  void step_kept() { turn_behind_ = momentum_behind_; }
  /// To be called when the state was replaced by another complete one. Engines load it even if its
  /// step number is that of the state that they have.
  void replaced();

  /// Fetches the parts that StateParts::turn_hash() reads, unless the host's copy is up to date.
  /// Blocks; microbatches may be running.
  void bring_turn();
  /// Fetches the whole momentum as well.
  void bring_all();

 private:
  void bring_parameters();

  nn::ModelState& state_;
  StateOnDevice& device_;
  bool parameters_behind_ = false;
  bool momentum_behind_ = false;  // except, perhaps, the slice that turn_hash() reads
  bool turn_behind_ = false;      // the slice that turn_hash() reads
};

}  // namespace mayfly::engine
