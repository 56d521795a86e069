#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Checks that views are published only for a reason. Each event accounts for a few views: for the
/// change itself, and for the reports of members that it interrupts. The numbers are generous; the
/// checker must find a coordinator that publishes one view after the other without a reason.
class ViewBudgetChecker {
 public:
  ViewBudgetChecker(Violations& violations, std::uint64_t each)
      : violations_(violations), each_(each) {}

  /// An event that changes the members or the assignment of microbatches.
  void on_event() { ++events_; }
  void on_view() {
    ++views_;
    violations_.expect(views_ <= kFirst + each_ * events_, [this] {
      return std::to_string(views_) + " views after " + std::to_string(events_) + " events";
    });
  }

 private:
  static constexpr std::uint64_t kFirst = 4;

  Violations& violations_;
  std::uint64_t each_;
  std::uint64_t events_ = 0;
  std::uint64_t views_ = 0;
};

}  // namespace mayfly::sim
