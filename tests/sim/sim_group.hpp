#pragma once

// The gradient group of one view, reduced to what matters: everybody enters, contributes to a step
// and is given the sum, each at its own moment; whoever leaves early breaks it for the others, each
// of whom notices at its own moment and blames somebody.

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::sim {

class SimWorld;

struct Contribution {
  elastic::MicrobatchSet microbatches;
  std::uint64_t sum = 0;
  bool boundary = false;  ///< this member was told to stop at a boundary
};

class SimGroup {
 public:
  SimGroup(SimWorld& world, elastic::View view) : world_(world), view_(std::move(view)) {}

  void enter(MemberId member);
  void contribute(MemberId member, std::uint64_t step, Contribution contribution);
  /// Leaves after a step that everybody completes: nobody is disturbed before it has that step.
  void leave_cleanly(MemberId member) { leave(member, milliseconds(250)); }
  /// Breaks the group: abort, failure or death.
  void leave_broken(MemberId member) { leave(member, Duration::zero()); }
  /// The member's host is off the network: nothing reaches the others, not even an end of file.
  void silence(MemberId member) { silent_.insert(member); }

 private:
  void leave(MemberId member, Duration grace);
  void tell_broken(MemberId member, MemberId culprit, Duration grace);
  void reduce(std::uint64_t step);
  [[nodiscard]] std::size_t contributions_needed() const;

  SimWorld& world_;
  elastic::View view_;
  std::set<MemberId> entered_;
  std::set<MemberId> gone_;
  std::set<MemberId> silent_;
  std::map<std::uint64_t, std::map<MemberId, Contribution>> steps_;
};

}  // namespace mayfly::sim
