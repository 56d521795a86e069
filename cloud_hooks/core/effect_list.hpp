#pragma once

// The effects of one event, in the order in which they are to be carried out. Pure; one thread.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cloud_hooks/core/replacement_events.hpp"

namespace mayfly::cloud_hooks {

class EffectList {
 public:
  /// To be carried out after those that were added before.
  void add(PolicyEffect effect) { effects_.push_back(std::move(effect)); }
  /// An event that concerns no server in particular; Fleet::tell() is for the others. `cost`: total
  /// cost of what has ended.
  void tell(std::string kind, std::string detail, std::optional<double> cost = {}) {
    add(policy_effect::Tell{std::move(kind), std::move(detail), {}, cost});
  }
  /// What was added since the last call.
  [[nodiscard]] std::vector<PolicyEffect> take() { return std::exchange(effects_, {}); }

 private:
  std::vector<PolicyEffect> effects_;
};

}  // namespace mayfly::cloud_hooks
