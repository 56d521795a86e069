#pragma once

// The training loop of one worker. It runs one view at a time: form the group, bring everybody to
// the same state, then step after step until the view ends; then it reports and waits for the next
// order. What belongs to one part of that has a class of its own:
//
//   StepWork       the step that is being computed, from one view to the next
//   StateKeeper    the state that steps change
//   StateExchange  who has the state, who gets it
//   MemberChecks   the same state and the same results everywhere
//   StepReports    what the coordinator's process is told

#include <cstdint>
#include <deque>
#include <memory>
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
#include "engine/training/checkpoint_schedule.hpp"
#include "engine/training/compute_pool.hpp"
#include "engine/training/member_checks.hpp"
#include "engine/training/state_exchange.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/step_reports.hpp"
#include "engine/training/step_work.hpp"
#include "engine/training/trainer_activity.hpp"
#include "engine/training/view_part.hpp"
#include "engine/training/worker_link.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// What the trainer works with; everything outlives it.
struct TrainerParts {
  const Job& job;
  ReductionLayout& layout;  ///< only the trainer's StepWork cuts it, between steps
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
  void prepare_to_observe() { exchange_.prepare_to_observe(); }

  /// The last step in this worker's state.
  [[nodiscard]] Step committed() const { return state_.committed(); }
  /// Where the others of the last view are, if this worker was evicted and some of them perhaps
  /// cannot be reached from here: no step of the view was committed, or `reason` says so. Else
  /// empty. After run(), with the reason that it returned.
  [[nodiscard]] std::vector<std::string> unproven_peers(elastic::DismissReason reason) const {
    const bool is_in_doubt = part_.steps == 0 || reason == elastic::DismissReason::kUnreachable;
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
  /// One step until it is committed, exponents raised and tried again as often as it takes. The
  /// value is true if the members agreed to stop at this boundary.
  Result<bool> run_step(const elastic::View& view, collectives::Group& group,
                        const elastic::MicrobatchSet& share,
                        const elastic::MicrobatchSet& next_share);
  void compute(const elastic::MicrobatchSet& share);
  Result<ReducedStep> reduce(const elastic::View& view, collectives::Group& group);
  /// Waits until every microbatch of this member is in the bucket; false if interrupted.
  [[nodiscard]] bool computed(std::size_t bucket);
  /// All gradients are finite, or it may be the loss scale's fault that they are not.
  [[nodiscard]] bool goes_on_after(const ReducedStep& reduced) const;
  void write_checkpoint_if_due();
  void commit(const elastic::View& view, const ReducedStep& reduced);
  void tune_buckets(const ReducedStep& reduced);
  /// If this worker cannot compute its share, ends the job and says why.
  [[nodiscard]] Result<void> check_pool();

  // Beside training:
  Result<void> evaluate(const elastic::View& view, collectives::Group& group);
  /// After the last step: evaluation, last checkpoint, and everybody waits for everybody.
  Result<void> finish_job(const elastic::View& view, collectives::Group& group);
  Result<void> bring_home(const elastic::View& view);
  Result<void> wait_for_reports(const elastic::View& view);

  TrainerParts parts_;
  ViewPart part_;
  std::vector<std::string> peers_;  // the others of this view
  std::optional<Step> evaluated_;   // last step evaluated in this view
  StateKeeper state_;
  TrainerActivity activity_;
  GradientBuckets buckets_;
  BucketTuner tuner_;
  StepWork work_;
  MemberChecks checks_;
  CheckpointSchedule schedule_;
  StepReports reports_;
  std::optional<collectives::AbortSignal> over_;  // raised when the present view is
  StateExchange exchange_;                        // last: its threads use the rest
};

}  // namespace mayfly::engine
