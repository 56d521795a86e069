#pragma once

// The progress of a job as this coordinator knows it, for `mayfly status` and the summary; also
// decides which reports are new. It is in memory; reading it waits for no disk.

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "engine/job/job.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/records.hpp"
#include "engine/run/run_history.hpp"
#include "engine/run/summary.hpp"

namespace mayfly::engine {

/// Any thread. `t` is an instant in seconds on the time axis of the run's records.
class JobProgress {
 public:
  /// `history`: what is on record of a job that goes on. `job` outlives the object.
  JobProgress(const Job& job, RunHistory history);

  // Events, in the order in which they are recorded:
  /// A note of the coordinator of this kind: the job may stand still from now on, or go on.
  void noted(const std::string& kind, double t);
  /// The effect of a new view on the steps.
  struct ViewChange {
    std::uint64_t committed = 0;  ///< the last step before it
    std::uint64_t undone = 0;     ///< steps that were committed and have to be computed again
  };
  /// A view was published. `restarts`: the members with later states than its committed step are
  /// lost. Nothing: it is on record already.
  [[nodiscard]] std::optional<ViewChange> view_published(const ViewEvent& view, double t,
                                                         bool restarts);
  /// A change of view is complete; the record of it. `detected`: its instant as `t`.
  [[nodiscard]] RecoveryRecord recovered(const elastic::Recovery& recovery, double detected);
  /// A worker has joined; the record of it. `connected`: its instant as `t`.
  [[nodiscard]] JoinRecord joined(const elastic::Join& join, double connected);
  /// A member has reported that it committed a step. False: this is on record already, or the step
  /// was undone since.
  [[nodiscard]] bool committed(const StepRecord& step, Instant now);
  /// False: an evaluation of this step or a later one is on record.
  [[nodiscard]] bool evaluated(const EvaluationRecord& evaluation);
  /// A checkpoint was written, or could not be. False: a repeated report.
  [[nodiscard]] bool checkpointed(const CheckpointRecord& checkpoint);
  /// A checkpoint is in the run directory now.
  void received(const ReceivedCheckpoint& checkpoint);
  /// The state was complete after this step.
  void has_state(const StateRecord& state);
  /// Steps were undone: the record with their number. Nothing: a repeated report.
  [[nodiscard]] std::optional<FallBackRecord> fell_back(FallBackRecord reported);
  /// The job has ended.
  void ended(double t);

  /// The last committed step of the state that the job has.
  [[nodiscard]] std::uint64_t last_step() const;
  /// Whether a checkpoint of this step was written since the job was last started.
  [[nodiscard]] bool has_checkpoint(Step step) const;
  /// The folder of the newest that was written, here or on a worker; empty if there is none.
  [[nodiscard]] std::string last_checkpoint() const;
  /// The rate at the last committed step; 0: there was none yet.
  [[nodiscard]] double images_per_second() const;
  /// Every change of view since this process started, with the coordinator's instants and, with
  /// parameter servers, the step that they had reported.
  [[nodiscard]] std::vector<elastic::Recovery> recoveries() const;
  /// Every join that was completed since this process started.
  [[nodiscard]] std::vector<elastic::Join> joins() const;
  /// Committed steps whose records have not come, in ascending order.
  [[nodiscard]] std::vector<std::uint64_t> missing_records() const;
  /// Why no checkpoint has the last committed step, if that is so. May read the run directory.
  [[nodiscard]] std::optional<std::string> unsaved_state() const;
  /// All but the outcome, its detail and the cost. Reads the run directory.
  [[nodiscard]] Summary summary() const;

 private:
  [[nodiscard]] std::uint64_t step_at(std::uint64_t of_members) const;

  const Job& job_;
  const bool servers_count_steps_;  // and not the members
  const bool goes_on_;              // another process recorded before this one
  mutable std::mutex mutex_;
  RunHistory history_;    // all that is on record, by whichever process
  Instant first_commit_;  // that this process heard of
  Instant last_commit_;
  double images_per_second_ = 0;
  std::optional<CheckpointRecord> unsaved_;  // the last checkpoint that failed
  std::optional<Step> newest_here_;          // checkpoint in the run directory that was received
  std::vector<elastic::Recovery> recoveries_;
  std::vector<elastic::Join> joins_;
};

}  // namespace mayfly::engine
