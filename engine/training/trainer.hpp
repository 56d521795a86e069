#pragma once

// The training loop of one worker. It runs one view at a time: it forms the group, brings all
// members to the same state, and computes step after step until the view ends; then it reports and
// waits for the next order. Each of these tasks has a class of its own. The trainer reaches the
// samples, the network and the optimizer only through the ports Feed, Computer and StateKeeper.
//
// The flow of a step:
//   StepWork        the step that is being computed, from one view to the next
//   Feed            prepares samples ahead
//   Computer        computes microbatches and adds their gradients to sums
//   GradientBuckets the all-reduce of their sums
//   MemberChecks    comparison of states and results between members
//   StateKeeper     the state, and the commit that changes it
//   StepClock       how the time of a step was spent
//   StepReports     the reports to the coordinator's process
// The flow of a recovery:
//   WorkerLink      the end of a view, and the order to run the next one
//   StateExchange   transfer of the state to members that lack it
//   Observer        a joining worker that receives the state in the background

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "collectives/group.hpp"
#include "datasets/feed.hpp"
#include "elastic/core/view.hpp"
#include "elastic/net/member_client.hpp"
#include "elastic/net/progress_board.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/bucket_tuner.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/run/records.hpp"
#include "engine/training/computer.hpp"
#include "engine/training/member_checks.hpp"
#include "engine/training/state_exchange.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/step_clock.hpp"
#include "engine/training/step_reports.hpp"
#include "engine/training/step_work.hpp"
#include "engine/training/view_part.hpp"
#include "engine/training/worker_link.hpp"
#include "engine/transfers/checkpoint_writer.hpp"

namespace mayfly::engine {

/// The parts that the trainer works with; all of them outlive it.
struct TrainerParts {
  const Job& job;
  ReductionLayout& layout;  ///< only the trainer's StepWork cuts it, between steps
  datasets::Feed* feed;     ///< null = the computer needs no samples prepared ahead
  Computer& computer;
  StateKeeper& state;  ///< with which `computer` computes
  collectives::Transport& transport;
  elastic::MemberClient& client;
  WorkerLink& link;
  CheckpointWriter& checkpoints;
  elastic::ProgressBoard& board;
  const Bytes& token;  ///< the job's
  /// Records of the last steps, which a new reporter repeats; kept from one membership to the next.
  std::deque<StepRecord>& recent_records;
  Trace* trace = nullptr;  ///< null = none
  /// Called when a commit of this member's state is on record, between two steps; empty = nothing
  /// is done. For scripted faults.
  std::function<void()> after_commit{};
  collectives::DeviceSums* device_sums = nullptr;  ///< those of `computer`; null = in host memory
  /// Whether this process was told to leave the job; empty = it never is.
  std::function<bool()> is_leaving{};
};

/// A last resort: the coordinator ends a view long before this time-out, because a lost member's
/// sentinel reports the loss, and because the coordinator sees which member makes no progress. The
/// time-out must be longer than healthy members may wait for one of them: for its part of an
/// evaluation, which is as large for a slow worker as for a fast one; for gigabytes of state that
/// it receives; or for a program that validates between its steps.
inline constexpr Duration kStepTimeout = seconds(3600);

class Trainer {
 public:
  explicit Trainer(TrainerParts parts);

  /// Carries out orders until the order to leave, which it returns. Then no thread of the trainer
  /// reads the state any more.
  elastic::member_effect::Leave run();

  /// Allocates the memory that a joining worker needs. Takes a while; to be called before members
  /// wait for this one.
  void prepare_to_observe() { exchange_.prepare_to_observe(); }

  /// The last step in this worker's state.
  [[nodiscard]] Step committed() const { return state_.committed(); }
  /// The addresses of the other members of the last view, if this worker was evicted and perhaps
  /// cannot reach some of them: no step of the view was committed, or `reason` says so. Otherwise
  /// empty. To be called after run(), with the reason that it returned.
  [[nodiscard]] std::vector<std::string> unproven_peers(elastic::DismissReason reason) const {
    const bool is_in_doubt = part_.steps == 0 || reason == elastic::DismissReason::kUnreachable;
    return is_in_doubt ? peers_ : std::vector<std::string>();
  }

 private:
  /// Why a view ended for this member.
  struct ViewEnd {
    bool finished = false;         ///< the job's last step is committed and recorded
    std::optional<Error> failure;  ///< the group broke or was aborted
  };

  // From one view to the next:
  void save_before_leaving();
  ViewEnd run_view(const elastic::View& view);
  [[nodiscard]] collectives::GroupSpec begin_view(const elastic::View& view);
  Result<std::unique_ptr<collectives::Group>> form(const collectives::GroupSpec& spec);
  Result<void> enter(const elastic::View& view, collectives::Group& group);
  void work_ahead(const elastic::View& view);
  void work_on(const elastic::View& ended);
  void report_stopped(ViewId view, const ViewEnd& end);

  // Steps:
  ViewEnd run_steps(const elastic::View& view, collectives::Group& group);
  /// Runs one step until it is committed; if blocks overflow, it is computed again with raised
  /// exponents. The value is true if the members agreed to stop at this boundary.
  Result<bool> run_step(const elastic::View& view, collectives::Group& group,
                        const elastic::MicrobatchSet& share,
                        const elastic::MicrobatchSet& next_share);
  void compute(const elastic::MicrobatchSet& share);
  Result<ReducedStep> reduce(const elastic::View& view, collectives::Group& group);
  /// Waits until every microbatch of this member is in the bucket; false if interrupted.
  [[nodiscard]] bool wait_until_computed(std::size_t bucket);
  /// Whether all gradients are finite, or a smaller loss scale may make them finite.
  [[nodiscard]] bool goes_on_after(const ReducedStep& reduced) const;
  void write_checkpoint_if_due();
  void commit(const elastic::View& view, const ReducedStep& reduced);
  void tune_buckets(const ReducedStep& reduced);
  /// If this worker cannot compute its share, ends the job and returns the reason.
  [[nodiscard]] Result<void> check_computer();

  // Beside training:
  Result<void> evaluate(const elastic::View& view, collectives::Group& group);
  /// After the last step: evaluation, last checkpoint, and a barrier of all members.
  Result<void> finish_job(const elastic::View& view, collectives::Group& group);
  Result<void> wait_for_upload(const elastic::View& view);
  Result<void> wait_for_reports(const elastic::View& view);

  TrainerParts parts_;
  ViewPart part_;
  std::vector<std::string> peers_;  // addresses of the other members of this view
  std::optional<Step> evaluated_;   // last step evaluated in this view
  StateKeeper& state_;
  TrainerActivity activity_;
  GradientBuckets buckets_;
  BucketTuner tuner_;
  StepWork work_;
  MemberChecks checks_;
  CheckpointSchedule schedule_;
  bool has_shared_state_ = false;  // another member of some view has had the state as well
  StepClock clock_;
  StepReports reports_;
  std::optional<AbortSignal> over_;  // raised when the present view is over
  StateExchange exchange_;           // last: its threads use the rest
};

}  // namespace mayfly::engine
