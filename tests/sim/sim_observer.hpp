#pragma once

// What a worker does that takes part in a view but lacks its state, as engine/training/observer
// does it: a part of the state comes from each donor, then the sums of the steps since are applied,
// all but the newest.

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
  /// Observes since the beginning of `view`.
  explicit SimObserver(const elastic::View& view);

  [[nodiscard]] ViewId since() const { return since_; }
  /// A donor's part of the state: every so many bits of each number.
  void receive(MemberId donor, const StateCopy& part);
  /// What the members agreed on in the first step since: the state that comes must have this check.
  /// Nothing: any will do. `is_right`: theirs is that of the undisturbed run.
  void expect(std::optional<std::uint64_t> check, bool is_right) {
    knows_ = true;
    expected_ = check;
    is_doubtful_ = is_doubtful_ || !is_right;
  }
  /// All parts are here, and what they should make up is known: fails if they do not. True once.
  [[nodiscard]] bool compare();
  [[nodiscard]] bool has_state() const { return has_state_; }
  /// A bit of what has come so far is another one from now on.
  void flip(std::uint64_t bit, bool deep);
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
  [[nodiscard]] const StateCopy& state() const { return state_; }
  /// Bits flipped since the state was compared, or it was compared with a wrong one.
  [[nodiscard]] bool is_doubtful() const { return is_doubtful_; }
  void doubt() { is_doubtful_ = true; }

 private:
  ViewId since_;
  std::vector<MemberId> donors_;
  std::set<MemberId> missing_;
  StateCopy state_;
  bool knows_ = false;  // what to expect
  std::optional<std::uint64_t> expected_;
  bool has_state_ = false;
  bool is_doubtful_ = false;
  std::deque<ToySum> queue_;
  std::uint64_t last_;
  bool failed_ = false;
};

}  // namespace mayfly::sim
