#pragma once

// A worker that is in a view but lacks its state (an observer), like engine/training/observer: it
// receives a part of the state from each donor, and then applies the sums of the steps since the
// copy, all but the newest.

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "elastic/core/view.hpp"
#include "tests/sim/toy_model.hpp"

namespace mayfly::sim {

class SimObserver {
 public:
  /// Begins to observe at the beginning of `view`.
  explicit SimObserver(const elastic::View& view);

  [[nodiscard]] ViewId since() const { return since_; }
  /// Receives a donor's part of the state. With n donors it has every n-th bit of each number.
  void receive(MemberId donor, const StateCopy& part);
  /// `check`: the check of the state on which the members agreed in the first step since the copy.
  /// The received state must have it; without one any state is accepted. `is_right`: whether the
  /// members' state is that of the undisturbed run.
  void expect(std::optional<std::uint64_t> check, bool is_right) {
    knows_ = true;
    expected_ = check;
    is_doubtful_ = is_doubtful_ || !is_right;
  }
  /// True once: when all parts have arrived and the expected check is known. Marks the observer as
  /// failed if the state does not have that check.
  [[nodiscard]] bool compare();
  [[nodiscard]] bool has_state() const { return has_state_; }
  /// Flips a bit of the state that has been received so far.
  void flip(std::uint64_t bit, bool deep);
  /// Adds the sum of the next step.
  void add(const ToySum& sum);
  /// Forgets the newest sum if it is of a later step.
  void resume_after(std::uint64_t committed);
  /// Whether all sums but the newest are applied.
  [[nodiscard]] bool caught_up() const { return has_state() && queue_.size() <= 1; }
  /// Applies the oldest sum; `applies` false: only pretends to.
  ToySum apply_one(bool applies);
  /// The state cannot be received.
  void fail() { failed_ = true; }
  [[nodiscard]] bool failed() const { return failed_; }

  [[nodiscard]] std::uint64_t observed() const { return failed_ ? 0 : last_; }
  [[nodiscard]] std::uint64_t applied() const { return last_ - queue_.size(); }
  [[nodiscard]] std::size_t waiting() const { return queue_.size(); }
  [[nodiscard]] const StateCopy& state() const { return state_; }
  /// Whether bits flipped since the state was compared, or it was compared with a wrong state.
  [[nodiscard]] bool is_doubtful() const { return is_doubtful_; }
  void doubt() { is_doubtful_ = true; }

 private:
  ViewId since_;
  std::vector<MemberId> donors_;
  std::set<MemberId> missing_;
  StateCopy state_;
  bool knows_ = false;  // expect() was called
  std::optional<std::uint64_t> expected_;
  bool has_state_ = false;
  bool is_doubtful_ = false;
  std::deque<ToySum> queue_;
  std::uint64_t last_;
  bool failed_ = false;
};

}  // namespace mayfly::sim
