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
  /// `history`: the records of a job that is continued. `job` outlives the object.
  JobProgress(const Job& job, RunHistory history);

  // Events, in the order in which they are recorded:
  /// The coordinator made a note of this kind. Some kinds mean that the job pauses or continues.
  void noted(const std::string& kind, double t);
  /// The effect of a new view on the steps.
  struct ViewChange {
    std::uint64_t committed = 0;  ///< the last step before it
    std::uint64_t undone = 0;     ///< steps that were committed and have to be computed again
  };
  /// A view was published. `restarts`: the members with later states than its committed step are
  /// lost. Returns nothing if the view is on record already.
  [[nodiscard]] std::optional<ViewChange> view_published(const ViewEvent& view, double t,
                                                         bool restarts);
  /// A change of view is complete; returns its record. `detected`: the instant of detection as `t`.
  [[nodiscard]] RecoveryRecord recovered(const elastic::Recovery& recovery, double detected);
  /// A worker has joined; returns the record. `connected`: the instant of its connection as `t`.
  [[nodiscard]] JoinRecord joined(const elastic::Join& join, double connected);
  /// A member has reported that it committed a step. Returns false if this is on record already,
  /// the step was undone since, or the job has no such step.
  [[nodiscard]] bool committed(const StepRecord& step, Instant now);
  /// Returns false if an evaluation of this step or a later one is on record.
  [[nodiscard]] bool evaluated(const EvaluationRecord& evaluation);
  /// A checkpoint was written, or could not be. Returns false for a repeated report.
  [[nodiscard]] bool checkpointed(const CheckpointRecord& checkpoint);
  /// A checkpoint has arrived in the run directory.
  void received(const ReceivedCheckpoint& checkpoint);
  /// The state was complete after this step.
  void has_state(const StateRecord& state);
  /// Steps were undone. Returns the record with their number; nothing for a repeated report.
  [[nodiscard]] std::optional<FallBackRecord> fell_back(FallBackRecord reported);
  /// The job has ended.
  void ended(double t);

  /// The last committed step of the state that the job has.
  [[nodiscard]] std::uint64_t last_step() const;
  /// Whether a checkpoint of this step was written since the job was last started.
  [[nodiscard]] bool has_checkpoint(Step step) const;
  /// The folder of the newest checkpoint, here or on a worker; empty if there is none.
  [[nodiscard]] std::string last_checkpoint() const;
  /// The rate at the last committed step; 0 before the first one.
  [[nodiscard]] double images_per_second() const;
  /// Every change of view since this process started, with the coordinator's instants and, with
  /// parameter servers, the step that they had reported.
  [[nodiscard]] std::vector<elastic::Recovery> recoveries() const;
  /// Every join that was completed since this process started.
  [[nodiscard]] std::vector<elastic::Join> joins() const;
  /// Committed steps whose records have not arrived.
  [[nodiscard]] StepSet missing_records() const;
  /// The reason why no checkpoint contains the last committed step; nothing if one does. May read
  /// the run directory.
  [[nodiscard]] std::optional<std::string> unsaved_state() const;
  /// The summary without the outcome, its detail and the cost. Reads the run directory.
  [[nodiscard]] Summary summary() const;

 private:
  void forget_checkpoints_after(std::uint64_t step);
  [[nodiscard]] std::uint64_t step_at(std::uint64_t of_members) const;

  const Job& job_;
  const bool servers_count_steps_;  // and not the members
  const bool is_continued_;         // another process recorded before this one
  mutable std::mutex mutex_;
  RunHistory history_;    // all records, also those of earlier processes
  Instant first_commit_;  // that was reported to this process
  Instant last_commit_;
  double images_per_second_ = 0;
  std::optional<CheckpointRecord> unsaved_;  // the last checkpoint that failed
  std::optional<Step> newest_received_;      // checkpoint in the run directory that was received
  std::vector<elastic::Recovery> recoveries_;
  std::vector<elastic::Join> joins_;
};

}  // namespace mayfly::engine
