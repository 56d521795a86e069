#pragma once

// What a worker does that takes part in a view but lacks its state, as engine/observer does it: a
// part of the state comes from each donor, then the sums of the steps since are applied, all but
// the newest.

#include <cstdint>
#include <deque>
#include <optional>
#include <set>

#include "elastic/core/view.hpp"
#include "tests/sim/toy_model.hpp"

namespace mayfly::sim {

class SimObserver {
 public:
  /// Observes since the beginning of `view`.
  explicit SimObserver(const elastic::View& view);

  [[nodiscard]] ViewId since() const { return since_; }
  /// A donor's copy; true if that was the last one missing.
  bool receive(MemberId donor, ToyState copy);
  [[nodiscard]] bool has_state() const { return state_.has_value(); }
  /// The sum of the step after the last one.
  void add(const ToySum& sum);
  /// Forgets the newest sum if it is of a later step.
  void resume_after(std::uint64_t committed);
  /// Everything but the newest sum is applied.
  [[nodiscard]] bool caught_up() const { return has_state() && queue_.size() <= 1; }
  /// Applies the oldest sum; `applies` false: only pretends to.
  ToySum apply_one(bool applies);
  /// The state will not come.
  void fail() { failed_ = true; }
  [[nodiscard]] bool failed() const { return failed_; }

  [[nodiscard]] std::uint64_t observed() const { return failed_ ? 0 : last_; }
  [[nodiscard]] std::uint64_t applied() const { return last_ - queue_.size(); }
  [[nodiscard]] std::size_t waiting() const { return queue_.size(); }
  [[nodiscard]] ToyState state() const { return *state_; }

 private:
  ViewId since_;
  std::set<MemberId> missing_;  // donors
  std::optional<ToyState> copy_;
  std::optional<ToyState> state_;
  std::deque<ToySum> queue_;
  std::uint64_t last_;
  bool failed_ = false;
};

}  // namespace mayfly::sim
