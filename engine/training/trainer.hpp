#pragma once

// The training loop of one worker. It runs one view at a time: form the group, bring everybody to
// the same state, then step after step until the view ends; then it reports and waits for the next
// order.

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "collectives/abort_signal.hpp"
#include "collectives/group.hpp"
#include "elastic/core/view.hpp"
#include "elastic/net/member_client.hpp"
#include "elastic/net/progress_board.hpp"
#include "engine/faults/state_faults.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/bucket_tuner.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/run/checkpoint_writer.hpp"
#include "engine/run/records.hpp"
#include "engine/state/state_donor.hpp"
#include "engine/state/state_parts.hpp"
#include "engine/training/commit.hpp"
#include "engine/training/compute_pool.hpp"
#include "engine/training/host_copy.hpp"
#include "engine/training/observer.hpp"
#include "engine/training/worker_link.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// What the trainer works with; everything outlives it.
struct TrainerParts {
  const Job& job;
  ReductionLayout& layout;  ///< only the trainer cuts it, between steps
  datasets::Loader& loader;
  ComputePool& pool;
  collectives::Transport& transport;
  elastic::MemberClient& client;
  WorkerLink& link;
  CheckpointWriter& checkpoints;
  elastic::ProgressBoard& board;
  const Bytes& token;  ///< the job's
  /// Of the last steps, for a new reporter to repeat; from one membership to the next.
  std::deque<StepRecord>& recent_records;
  Trace* trace = nullptr;                          ///< null = none
  StateFaults* faults = nullptr;                   ///< null = none
  collectives::DeviceSums* device_sums = nullptr;  ///< those of `pool`; null = in host memory
};

/// A backstop only: the coordinator ends a view long before it passes, because it hears of a lost
/// member from the member's sentinel. It must outlast the slowest healthy step.
inline constexpr Duration kStepTimeout = seconds(300);

class Trainer {
 public:
  Trainer(TrainerParts parts, nn::ModelState initial);

  /// Follows orders until told to leave; returns that order.
  elastic::member_effect::Leave run();

  /// Gets the memory that a joiner of a job needs. Takes a while; before anybody waits for us.
  void prepare_to_observe() { observer_memory_.emplace(state_, committer_); }

  /// The last step in this worker's state.
  [[nodiscard]] Step committed() const { return state_.committed; }
  /// Where the others of the last view are, if this worker was evicted and some of them perhaps
  /// cannot be reached from here: no step of the view was committed, or `reason` says so. Else
  /// empty. After run(), with the reason that it returned.
  [[nodiscard]] std::vector<std::string> unproven_peers(elastic::DismissReason reason) const {
    const bool is_in_doubt = steps_of_view_ == 0 || reason == elastic::DismissReason::kUnreachable;
    return is_in_doubt ? peers_ : std::vector<std::string>();
  }
  /// The state, for the same worker's next part in the job. After run().
  [[nodiscard]] nn::ModelState take_state();

 private:
  /// Why a view ended for this member.
  struct ViewEnd {
    bool finished = false;         ///< the job's last step is committed and recorded
    std::optional<Error> failure;  ///< the group broke or was aborted
  };

  ViewEnd run_view(const elastic::View& view);
  Result<std::unique_ptr<collectives::Group>> form(const collectives::GroupSpec& spec);
  ViewEnd run_steps(const elastic::View& view, collectives::Group& group);
  /// One step until it is committed, exponents raised and tried again as often as it takes. The
  /// value is true if the members agreed to stop at this boundary.
  Result<bool> run_step(const elastic::View& view, collectives::Group& group,
                        const elastic::MicrobatchSet& share,
                        const elastic::MicrobatchSet& next_share);

  /// The state as it is on the host, all of it.
  nn::ModelState& state_here() {
    host_copy_.bring_all();
    return state_;
  }
  /// Those of step 0, if this is the first time that somebody needs them of us.
  void draw_weights() { nn::draw_weights(parts_.job.model, parts_.job.config.seed, state_); }

  // trainer_enter.cpp: between the last step of a view and the first of the next
  void work_ahead(const elastic::View& view);
  void work_on(const elastic::View& ended);
  [[nodiscard]] bool may_begin(const elastic::MicrobatchSet& share) const;
  Result<void> enter(const elastic::View& view, collectives::Group& group);
  Result<void> agree(const elastic::View& view, collectives::Group& group);
  Result<void> catch_up(const elastic::View& view, collectives::Group& group, Instant deadline);
  [[nodiscard]] DonorAddress send_state(const elastic::View& view);
  Result<void> take_state(const elastic::View& view, const std::vector<DonorAddress>& senders);

  // trainer_observe.cpp: a member that lacks the state, and those that give it
  /// Before anything is exchanged: what of earlier views is still wanted.
  void begin_observing(const elastic::View& view);
  Result<void> agree_with_observers(const elastic::View& view, collectives::Group& group,
                                    Instant deadline);
  Result<void> give_and_take_state(const elastic::View& view, collectives::Group& group,
                                   Instant deadline);
  [[nodiscard]] Result<DonorAddress> offer_state(const elastic::View& view);
  /// The commit of a member that lacks the state; returns the loss.
  double observe(const ReducedStep& reduced);
  /// If the state has come and every sum but the present one is applied, it is ours.
  void take_state_if_caught_up();
  void give_up_if_failed();
  [[nodiscard]] const std::vector<std::int32_t>& exponents_of_position() const {
    return observes_ ? observed_exponents_ : state_.exponents;
  }

  [[nodiscard]] const std::optional<nn::LossScale>& scale_of_position() const {
    return observes_ ? observed_scale_ : state_.loss_scale;
  }
  /// All gradients are finite, or it may be the loss scale's fault that they are not.
  [[nodiscard]] bool goes_on_after(const ReducedStep& reduced) const;

  /// What the last step took, in microseconds; 0 in the first step of a view.
  [[nodiscard]] std::uint32_t previous_step_us() const;
  void tune_buckets(const ReducedStep& reduced);
  void begin_computing();
  void compute_share(const elastic::MicrobatchSet& share);
  Result<ReducedStep> reduce(const elastic::View& view, collectives::Group& group);
  /// Waits until every microbatch of this member is in the bucket; false if interrupted.
  [[nodiscard]] bool computed(std::size_t bucket);
  void commit(const elastic::View& view, const ReducedStep& reduced);
  double apply(const ReducedStep& reduced);
  /// What the reduction does not say of a step.
  struct StepFacts {
    double loss = 0;
    std::optional<nn::LossScale> scale;  ///< that it was computed with
    std::uint32_t attempts = 1;
  };
  void record(const elastic::View& view, const ReducedStep& reduced, const StepFacts& facts);
  Result<void> evaluate(const elastic::View& view, collectives::Group& group);
  /// After the last step: evaluation, last checkpoint, and everybody waits for everybody.
  Result<void> bring_home(const elastic::View& view);
  Result<void> finish_job(const elastic::View& view, collectives::Group& group);
  Result<void> wait_for_reports(const elastic::View& view);
  void report_stopped(ViewId view, const ViewEnd& end);
  /// Ends the job; only the reporter's word is sent unless only this member knows.
  void report_fatal(const std::string& reason, bool only_here = false);
  /// If this worker cannot compute its share, ends the job and says why.
  [[nodiscard]] Result<void> check_pool();
  void repeat_recent_records(const elastic::View& view);
  /// If the coordinator was away since the last time: it may have lost what it had taken.
  bool repeat_to_coordinator_that_was_away(const elastic::View& view);
  [[nodiscard]] TraceSpan span(const char* name, TraceArgument argument = {}) const {
    return {lane_, name, value(next(position_)), argument};
  }
  /// Tells the sentinel what this thread turns to.
  void turn_to(elastic::Activity activity, std::uint32_t bucket = elastic::kNoPart) {
    parts_.board.enter(activity, next(state_.committed), bucket);
  }
  void prefetch(std::uint64_t step, const elastic::MicrobatchSet& share);
  [[nodiscard]] bool is_digest_step(Step step) const;

  // trainer_checks.cpp: the same state everywhere, and the same results
  [[nodiscard]] std::optional<std::uint64_t> rest_of_state();
  [[nodiscard]] std::optional<std::uint32_t> state_check(std::optional<std::uint64_t> rest);
  [[nodiscard]] bool is_checkpoint_step(Step step) const;
  [[nodiscard]] bool is_checkpoint_due() const;
  void states_agreed();
  Result<void> compare_last_state(collectives::Group& group, Instant deadline);
  Error states_differ();
  [[nodiscard]] std::optional<std::uint32_t> audited() const;
  [[nodiscard]] std::optional<std::uint32_t> audit_check(const elastic::View& view);
  Error results_differ();

  TrainerParts parts_;
  nn::ModelState state_;  // parameters and momentum: see state_here()
  HostCopy host_copy_;    // of state_
  Step position_{};  // the last committed step of the view; that of the state, unless we lack it
  TraceLane* lane_;  // null without a trace
  GradientBuckets buckets_;
  BucketTuner tuner_;
  Committer committer_;
  StateParts state_parts_;

  // The step being computed. Its sums outlive a view, see gradient_sums.hpp.
  Step computing_{};                     // 0 = none
  std::uint32_t attempt_ = 0;            // how often its exponents were raised
  elastic::MicrobatchSet held_;          // in the sums, or on their way into them
  std::vector<std::int32_t> exponents_;  // that it is quantised with

  // While we lack the state that the others have:
  bool observes_ = false;
  std::vector<std::int32_t> observed_exponents_;  // of the next step
  std::optional<nn::LossScale> observed_scale_;   // the same
  bool expects_check_ = false;  // the members have not yet compared the state that comes
  bool gave_up_ = false;
  std::atomic<ViewId> observed_view_{};  // the present one; the observer's thread reads it

  Step saved_{};                        // a checkpoint of it is written or need not be
  Instant saved_at_ = monotonic_now();  // or the trainer began
  // Why the present view ended, if the members found that they disagree, and our word on it.
  elastic::Dispute dispute_ = elastic::Dispute::kNone;
  std::vector<std::uint64_t> disputed_;
  bool is_unsound_ = false;
  std::optional<std::uint64_t> audited_hash_;  // what we said of the step's audited microbatch

  Rank rank_{};               // in the present view
  bool is_reporter_ = false;  // for all members of it
  bool first_step_of_view_ = true;
  std::uint64_t steps_of_view_ = 0;
  std::vector<std::string> peers_;  // the others of this view
  std::optional<Step> evaluated_;   // last step evaluated in this view
  std::uint64_t prefetched_ = 0;    // step that was last requested from the loader
  Instant last_progress_;
  Instant last_commit_;
  Duration last_step_{};               // between the last two commits
  Duration waited_at_commit_{};        // of the loader
  std::uint64_t told_connection_ = 0;  // MemberClient::connections() when they were last repeated

  std::optional<collectives::AbortSignal> over_;   // raised when the present view is
  StateDonor donor_;                               // for observers
  StateDonor sender_;                              // for members that are behind
  std::optional<ObserverMemory> observer_memory_;  // for the first one
  std::optional<Observer> observer_;               // last: its thread uses the rest
};

}  // namespace mayfly::engine
