#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Checks that work is redistributed only after a member's speed changed, or after the view changed
/// for another reason. Each change accounts for a few rebalances, because the measured times follow
/// it gradually.
class RebalanceChecker {
 public:
  explicit RebalanceChecker(Violations& violations) : violations_(violations) {}
  void on_speed_change() { ++disturbances_; }
  void on_view() { disturbances_ += std::exchange(is_expected_, false) ? 0 : 1; }
  /// The coordinator has decided to rebalance; the next view is not counted as a change.
  void on_rebalance() {
    ++rebalances_;
    is_expected_ = true;
    violations_.expect(rebalances_ <= kEach * (disturbances_ + 1), [this] {
      return std::to_string(rebalances_) + " rebalances after " + std::to_string(disturbances_) +
             " disturbances";
    });
  }

 private:
  static constexpr std::uint64_t kEach = 3;

  Violations& violations_;
  bool is_expected_ = false;
  std::uint64_t disturbances_ = 0;
  std::uint64_t rebalances_ = 0;
};

}  // namespace mayfly::sim
