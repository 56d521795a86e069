#pragma once

// One worker process: the product's Member machine, and a toy trainer that computes microbatches
// one after the other, contributes their sum and commits.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "elastic/core/member.hpp"
#include "tests/sim/sim_group.hpp"
#include "tests/sim/sim_observer.hpp"
#include "tests/sim/toy_model.hpp"

namespace mayfly::sim {

class SimWorker {
 public:
  /// `committed` and `state`: of the checkpoint that it loads at the start.
  SimWorker(SimWorld& world, std::size_t index, Duration microbatch_time, std::uint64_t committed,
            ToyState state)
      : world_(world),
        index_(index),
        microbatch_time_(microbatch_time),
        committed_(committed),
        state_(state),
        position_(committed) {}

  // The process.
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] bool alive() const { return alive_; }
  /// Whether it ended because the coordinator had dismissed it.
  [[nodiscard]] bool has_left() const { return has_left_; }
  [[nodiscard]] std::optional<MemberId> id() const { return id_; }
  [[nodiscard]] Instant frozen_until() const { return frozen_until_; }
  void freeze_until(Instant when) { frozen_until_ = std::max(frozen_until_, when); }
  /// Ends the process; `silently` means that its host is off the network.
  void die(bool silently);
  void heartbeat();
  /// Its trainer fails and blames no member. False if it is in no view.
  bool fails_alone();
  void set_microbatch_time(Duration time) { microbatch_time_ = time; }

  // Messages and events.
  void on_message(const elastic::Message& message);
  void on_connection_closed();
  void on_leave_asked();
  void on_group_formed(ViewId view);
  /// `agreed`: the check of the state, which is equal on all members with a state; nullopt if the
  /// members' states differ.
  void on_reduced(ViewId view, std::uint64_t step, const ToySum& sum, bool boundary,
                  std::optional<std::uint64_t> agreed);
  void on_group_broken(ViewId view, MemberId culprit);
  /// All members have done their work after the last step.
  void on_all_at_end(ViewId view);
  /// A member that has the state has finished the last step.
  void on_end(ViewId view);
  /// Receives a donor's part of the state at the beginning of view `since`.
  void on_part(MemberId donor, ViewId since, const StateCopy& part);

  /// Flips a bit of its state, of a copy that it sends to observers, or of a state that it receives
  /// as an observer.
  void flip_a_bit();
  [[nodiscard]] std::uint64_t deep_state() const { return deep_state_; }
  /// Whether it is an observer, without the state of its view.
  [[nodiscard]] bool observes() const { return observes_; }

  /// Whether the trainer is in this view.
  [[nodiscard]] bool runs(ViewId view) const { return view_ && view_->id == view; }
  /// Its state, if that is the state after `step`.
  [[nodiscard]] std::optional<ToyState> state_after(std::uint64_t step) const;

 private:
  void give(const elastic::MemberEvent& event);
  void carry_out(const elastic::member_effect::Send& send);
  void carry_out(const elastic::member_effect::RunView& run);
  void carry_out(const elastic::member_effect::AbortGroup& abort);
  void carry_out(const elastic::member_effect::AskForBoundary& ask);
  void carry_out(const elastic::member_effect::Leave& leave);
  void carry_out(const elastic::member_effect::Adopt& /*adopt*/) {}
  void carry_out(const elastic::member_effect::TryElsewhere& /*elsewhere*/) {}

  void sync_or_start();
  void take_state();
  void start_computing();
  void report_progress();
  [[nodiscard]] std::uint64_t state_check() const;
  void contribute();
  void commit(const ToySum& sum);
  [[nodiscard]] bool has_finished() const;
  [[nodiscard]] bool ends_together() const;
  void do_the_rest();
  void tell_end();
  void stop_trainer(bool failed, std::optional<MemberId> culprit,
                    elastic::Dispute dispute = elastic::Dispute::kNone);

  // the compute thread
  void begin_step(const elastic::MicrobatchSet& share);
  void work_ahead();
  void work_on();
  void compute_share(std::uint64_t step, const elastic::MicrobatchSet& share);
  void compute_next();
  void discard_work();
  [[nodiscard]] elastic::MicrobatchSet held_for_next_step() const;

  // sim_observer.cpp
  void begin_observing();
  void start_observing();
  void fetch_from(MemberId donor, bool comes);
  void replay_if_right();
  void check_observed();
  void doubt_state();
  void replay(ViewId since);
  void say_caught_up();
  void apply_observed();
  void take_state_if_caught_up();
  void observe(const ToySum& sum, std::uint64_t agreed);
  void contribute_nothing();

  [[nodiscard]] const elastic::ViewMember& self_in_view() const;
  [[nodiscard]] SimGroup& group();
  /// Runs `then` after `delay` unless the trainer has left this view by then.
  template <typename Then>
  void in_view_after(Duration delay, Then then);

  SimWorld& world_;
  std::size_t index_;
  Duration microbatch_time_;
  bool alive_ = true;
  bool has_left_ = false;
  bool has_worked_ = false;  // it has computed with a state of the job
  Instant frozen_until_;
  std::optional<MemberId> id_;
  std::optional<elastic::Member> member_;
  // The trainer.
  std::uint64_t committed_;
  ToyState state_;
  std::uint64_t deep_state_ = 0;       // stands for momentum and statistics; 0 is right
  std::optional<elastic::View> view_;  // while it runs one
  std::uint64_t generation_ = 0;       // of the trainer's task; timers of older ones are void
  // The compute thread: it goes on whether a view runs or not.
  std::uint64_t computing_ = 0;  // the step; 0 = none
  elastic::MicrobatchSet held_;  // microbatches that are in its sum or will be
  ToySum held_sum_;
  std::deque<std::uint32_t> queue_;  // microbatches that are not begun yet
  bool is_busy_ = false;             // it computes a microbatch
  std::uint64_t discarded_ = 0;      // times that work was discarded; older timers are void
  bool awaits_work_ = false;         // contributes when all microbatches are computed
  bool is_reducing_ = false;
  bool boundary_asked_ = false;
  bool stays_ = false;  // the coordinator expects it in the next view
  bool has_reported_progress_ = false;
  bool is_first_step_ = false;  // of the view
  bool end_is_known_ = false;   // a member with the state has finished the last step
  Instant turned_to_;           // when it began the present microbatch
  Duration computing_time_{};   // since the last Progress
  std::uint32_t computed_ = 0;
  std::uint64_t position_;  // the last committed step of the view
  bool observes_ = false;   // it lacks the state of that step
  std::optional<SimObserver> observer_;
  bool expects_check_ = false;          // of the state that it is to receive
  std::map<ViewId, StateCopy> copies_;  // for observers, by the view in which they began
};

}  // namespace mayfly::sim
