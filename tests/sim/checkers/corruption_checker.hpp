#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/ids.hpp"
#include "elastic/core/coordinator.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Checks that a member with a wrong state is detected within a bound of steps, and that no other
/// member is evicted for it. A job may fail because of it only if there were no two healthy members
/// that could have shown which state is right.
class CorruptionChecker {
 public:
  /// Members compare their whole states once in so many steps.
  static constexpr std::uint64_t kRounds = 8;

  explicit CorruptionChecker(Violations& violations) : violations_(violations) {}

  /// The member's state is wrong from now on: a bit flipped, or it copied a wrong state.
  void on_wrong(MemberId member) {
    wrong_.try_emplace(member, 0);
    any_ = true;
  }
  /// The member copied the state of another one.
  void on_copy(MemberId member, MemberId source) {
    if (is_wrong(source)) {
      on_wrong(member);
    } else {
      wrong_.erase(member);
    }
  }
  /// The member uses a state that it has received in parts. `is_right`: whether that is right.
  void on_taken(MemberId member, bool is_right) {
    if (is_right) {
      wrong_.erase(member);
    } else {
      on_wrong(member);
    }
  }
  [[nodiscard]] bool is_wrong(MemberId member) const { return wrong_.contains(member); }
  [[nodiscard]] bool any() const { return any_; }
  /// A member with a wrong state committed a step together with healthy members.
  void on_wrong_commit(MemberId member) {
    violations_.expect(++wrong_[member] <= kRounds + 1, [member] {
      return "member " + std::to_string(value(member)) + " is wrong for too many steps";
    });
  }
  /// `healthy`: the number of living healthy members. A single one may be outvoted by copies of a
  /// wrong state.
  void on_expelled(MemberId member, std::size_t healthy) {
    violations_.expect(is_wrong(member) || healthy < 2, [member] {
      return "member " + std::to_string(value(member)) + " is healthy, but was expelled";
    });
  }

 private:
  Violations& violations_;
  bool any_ = false;
  std::map<MemberId, std::uint64_t> wrong_;  // with the number of steps committed since
};

}  // namespace mayfly::sim
