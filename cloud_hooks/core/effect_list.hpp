#pragma once

// The effects of one event, in the order in which the driver carries them out. Pure; one thread.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cloud_hooks/core/replacement_events.hpp"

namespace mayfly::cloud_hooks {

class EffectList {
 public:
  /// Appends an effect.
  void add(PolicyEffect effect) { effects_.push_back(std::move(effect)); }
  /// Adds an event that concerns no server in particular; for the others there is Fleet::note().
  /// `cost`: total cost of the request that has ended.
  void note(std::string kind, std::string detail, std::optional<double> cost = {}) {
    add(policy_effect::Note{std::move(kind), std::move(detail), {}, cost});
  }
  /// The effects that were added since the last call.
  [[nodiscard]] std::vector<PolicyEffect> take() { return std::exchange(effects_, {}); }

 private:
  std::vector<PolicyEffect> effects_;
};

}  // namespace mayfly::cloud_hooks
