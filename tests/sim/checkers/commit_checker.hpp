#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/ids.hpp"
#include "elastic/core/view.hpp"
#include "tests/sim/checkers/violations.hpp"
#include "tests/sim/toy_model.hpp"

namespace mayfly::sim {

/// Checks four invariants of commits:
/// - The committed steps are 1, 2, 3, ... for the job, and for each member except where it receives
///   a state.
/// - Every state after a step equals the state of the undisturbed run after that step.
/// - A view does not undo a step that one of its members has committed, nor one whose state is held
///   by a worker that no fault has separated from the job.
/// - A member that alone holds a committed step is not dismissed.
class CommitChecker {
 public:
  CommitChecker(Violations& violations, std::uint32_t microbatches)
      : violations_(violations), microbatches_(microbatches) {}
  void on_commit(MemberId member, std::uint64_t step, ToyState state);
  /// A new member has loaded this state; the coordinator does not know that yet.
  void on_loaded(MemberId member, std::uint64_t step, ToyState state);
  void on_sync(MemberId member, std::uint64_t step, ToyState state);
  /// An observer has received a state or applied sums to it, but does not use it yet.
  void on_observed(MemberId member, std::uint64_t step, ToyState state);
  /// The member's state after this step is known to be wrong.
  void on_wrong(MemberId member, std::uint64_t step);
  void on_view(const elastic::View& view);
  /// The member died; the coordinator may not know that yet.
  void on_died(MemberId member) { dead_.insert(member); }
  /// The coordinator has declared the member lost.
  void on_lost(MemberId member) { given_up_.insert(member); }
  /// The coordinator has dismissed the member.
  void on_left(MemberId member);
  void on_end(std::uint64_t last_step);

  /// The last step that a member with a right state has committed; a checkpoint may be of that one.
  [[nodiscard]] std::uint64_t highest_right() const { return highest_right_; }
  /// Whether the member has had a state of the job, and not only the one that it loaded at first.
  [[nodiscard]] bool has_worked(MemberId member) const { return holders_.contains(member); }
  [[nodiscard]] ToyState expected(std::uint64_t step);

 private:
  Violations& violations_;
  std::uint32_t microbatches_;
  std::uint64_t highest_ = 0;
  std::uint64_t highest_right_ = 0;
  std::map<MemberId, std::uint64_t> of_member_;
  std::set<MemberId> holders_;  // members whose states the job relies on
  std::set<MemberId> dead_;
  std::set<MemberId> given_up_;  // lost, evicted or dismissed
  std::vector<ToyState> undisturbed_ = {kInitialState};
};

}  // namespace mayfly::sim
