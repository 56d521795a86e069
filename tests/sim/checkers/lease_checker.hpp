#pragma once

#include <map>

#include "base/ids.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Checks the ownership of gradient buffers: a worker's buffers belong to its group from the start
/// of an operation until the operation is over or its cancellation is confirmed. After that the
/// group does not access them, and before that no operation of another view starts.
class LeaseChecker {
 public:
  explicit LeaseChecker(Violations& violations) : violations_(violations) {}

  void on_start(MemberId member, ViewId view) {
    const auto [place, is_free] = leases_.try_emplace(member, view);
    if (!is_free) {
      violations_.add(name(member) + " starts an operation of view " + std::to_string(value(view)) +
                      " while view " + std::to_string(value(place->second)) + " uses its buffers");
    }
  }
  /// The operation is over, or was cancelled and does not access the buffers any more.
  void on_end(MemberId member, ViewId view) {
    const auto place = leases_.find(member);
    if (place != leases_.end() && place->second == view) {
      leases_.erase(place);
    }
  }
  /// The group moves bytes between the buffers and a connection.
  void on_touch(MemberId member, ViewId view) {
    const auto place = leases_.find(member);
    if (place == leases_.end() || place->second != view) {
      violations_.add(name(member) + ": the group of view " + std::to_string(value(view)) +
                      " touches buffers that it does not have any more");
    }
  }

 private:
  static std::string name(MemberId member) { return "member " + std::to_string(value(member)); }

  Violations& violations_;
  std::map<MemberId, ViewId> leases_;
};

}  // namespace mayfly::sim
