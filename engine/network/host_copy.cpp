#include "engine/network/host_copy.hpp"

#include "engine/state/state_parts.hpp"

namespace mayfly::engine {

void HostCopy::leave_behind() {
  parameters_behind_ = true;
  momentum_behind_ = true;
  turn_behind_ = true;
}

void HostCopy::replaced() {
  parameters_behind_ = false;
  momentum_behind_ = false;
  turn_behind_ = false;
  device_.state_replaced();
}

void HostCopy::bring_parameters() {
  if (parameters_behind_) {
    device_.fetch(nn::DevicePart::kParameters, 0, state_.parameters.span());
    parameters_behind_ = false;
  }
}

void HostCopy::bring_turn() {
  bring_parameters();
  if (turn_behind_) {
    const StateParts::Slice slice =
        StateParts::turn_slice(state_.momentum.size(), state_.committed);
    device_.fetch(nn::DevicePart::kMomentum, slice.first,
                  state_.momentum.span().subspan(slice.first, slice.count));
    turn_behind_ = false;
  }
}

void HostCopy::bring_all() {
  bring_parameters();
  if (momentum_behind_) {
    device_.fetch(nn::DevicePart::kMomentum, 0, state_.momentum.span());
    momentum_behind_ = false;
    turn_behind_ = false;
  }
}

}  // namespace mayfly::engine
