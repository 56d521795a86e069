#pragma once

// Parameters and momentum on the host where the newest are in the memory of a GPU, which updates
// them there: they come here when somebody reads them. Everything else in a state (statistics,
// exponents, the number of the step) is always here. Without a GPU that updates, nothing is ever
// brought. Trainer thread only.

#include "engine/training/compute_pool.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class HostCopy {
 public:
  /// `state` is whole. Both outlive this, and nobody else writes parameters or momentum of `state`
  /// without saying so.
  HostCopy(nn::ModelState& state, ComputePool& pool) : state_(state), pool_(pool) {}

  /// The device has made an update: what is here is that of the step before.
  void leave_behind();
  /// Somebody has put another whole state here. Engines load it, even if it has the number of the
  /// one they know.
  void replaced();

  /// Brings what StateParts::turn_hash() reads. Blocks until it is here; microbatches may be under
  /// way.
  void bring_turn();
  /// Brings the rest, too.
  void bring_all();

 private:
  void bring_parameters();

  nn::ModelState& state_;
  ComputePool& pool_;
  bool parameters_behind_ = false;
  bool momentum_behind_ = false;
};

}  // namespace mayfly::engine
