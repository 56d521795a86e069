#pragma once

// Brings the members of a view to the same state before its first step, and a large state to a
// worker that joins while the others continue training (ADR 16). Members that have the state send
// it. A member that is behind receives it while all wait; an observer receives it in the background
// and applies the sums of the steps since. Trainer thread only, except for the threads of its
// donors and its observer.

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "elastic/core/view.hpp"
#include "elastic/net/member_client.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/bucket_tuner.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/state/state_transfer.hpp"
#include "engine/training/computer.hpp"
#include "engine/training/observer.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/step_means.hpp"
#include "engine/training/step_work.hpp"
#include "engine/training/view_part.hpp"

namespace mayfly::engine {

/// The parts of the trainer that the exchange works with; all of them outlive it.
struct StateExchangeParts {
  const Job& job;
  const ReductionLayout& layout;
  const Bytes& token;  ///< the job's
  elastic::MemberClient& client;
  Computer& computer;
  StateKeeper& state;
  StepWork& work;
  GradientBuckets& buckets;
  BucketTuner& tuner;
  ViewPart& part;  ///< whose `observes` and `position` are set when the state is received or lost
  const TrainerActivity& activity;
};

class StateExchange {
 public:
  explicit StateExchange(const StateExchangeParts& parts);

  /// Allocates the memory that a joining worker needs, before members wait for it. Takes a while.
  void prepare_to_observe() { observer_memory_ = make_observer_memory(state_, means_); }
  /// Waits until no part of the state is being copied, so that it may change. Usually returns at
  /// once.
  void wait_until_copied();

  /// To be called before anything is exchanged: frees the copies of earlier views that no observer
  /// needs any more, and determines whether this member has the state.
  void begin_view(const elastic::View& view);
  /// Brings this member to the state of the view, or makes it an observer that can take part in
  /// reductions, and offers the state to members that lack it. Blocks for other members; `stop_fd`
  /// becomes readable when the view is over. Fails as the group does; kCorrupt for a received state
  /// that is not that of the view.
  [[nodiscard]] Result<void> agree(const elastic::View& view, collectives::Group& group,
                                   int stop_fd, Instant deadline);

  /// To be called before a step is committed: waits for copies of the state, and takes the state of
  /// an observer that has caught up.
  void before_commit();
  /// Commits a step on a member that does not have the state. Returns the loss, 0 if it is not
  /// known.
  double observe(const ReducedStep& reduced);
  /// Takes the observer's state if it has arrived and every sum except the present one is applied.
  void take_state_if_caught_up();

  /// The exponents and the loss scale of the step after part.position.
  [[nodiscard]] const std::vector<std::int32_t>& exponents() const {
    return part_.observes ? observed_exponents_ : state_.exponents();
  }
  [[nodiscard]] std::optional<nn::LossScale> loss_scale() const {
    return part_.observes ? observed_scale_ : state_.loss_scale();
  }
  /// The step up to which an observer has all sums; step 0 for any other member.
  [[nodiscard]] Step observed() const;

 private:
  Result<void> agree_with_observers(const elastic::View& view, collectives::Group& group,
                                    Instant deadline);
  Result<void> exchange_states(const elastic::View& view, collectives::Group& group,
                               Instant deadline);
  [[nodiscard]] Result<DonorAddress> offer_to_observers(const elastic::View& view);
  Result<void> catch_up(const elastic::View& view, collectives::Group& group, int stop_fd,
                        Instant deadline);
  [[nodiscard]] DonorAddress offer_to_members_behind(const elastic::View& view);
  [[nodiscard]] Result<DonorAddress> offer(StateDonor& donor, const elastic::View& view,
                                           PartRange part);
  Result<void> take_state(const elastic::View& view, const std::vector<DonorAddress>& senders,
                          int stop_fd);
  void begin_observer(const elastic::View& view, const std::vector<DonorAddress>& donors);
  void give_up_if_failed();
  void check_invariants() const;

  const Bytes& token_;
  elastic::MemberClient& client_;
  Computer& computer_;
  StateKeeper& state_;
  StepWork& work_;
  GradientBuckets& buckets_;
  BucketTuner& tuner_;
  ViewPart& part_;
  const TrainerActivity& activity_;
  const StepMeans means_;

  // While this member does not have the state:
  std::vector<std::int32_t> observed_exponents_;  // of the next step
  std::optional<nn::LossScale> observed_scale_;   // of the next step
  bool expects_check_ = false;  // the members have not yet compared the state that is being sent
  bool gave_up_ = false;
  std::atomic<ViewId> observed_view_{};  // the present one; the observer's thread reads it

  StateDonor donor_;                               // for observers
  StateDonor sender_;                              // for members that are behind
  std::optional<ObserverMemory> observer_memory_;  // for the first observer
  std::optional<Observer> observer_;               // last: its thread uses the rest
};

}  // namespace mayfly::engine
