#pragma once

// The history of a job from its run directory, for a coordinator that is started again. Only the
// part since the job was last started counts: a directory may hold an earlier part that ended and
// was resumed from a checkpoint.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/run/member_record.hpp"
#include "engine/run/records.hpp"
#include "engine/run/step_set.hpp"

namespace mayfly::engine {

/// Where a job that is resumed begins: the step of its checkpoint (0 = none) and the state's
/// digest.
struct StartingPoint {
  std::uint64_t step = 0;
  std::string digest;
};

struct RunHistory {
  StartingPoint start;
  std::uint64_t first_step = 0;  ///< 0 = no step is on record
  std::uint64_t last_step = 0;
  /// The step of the job's present state: less than last_step after the loss of all members that
  /// had that step, until the steps are computed again. Repeated steps are recorded only once.
  std::uint64_t current_step = 0;
  StepSet missing;                   ///< steps up to last_step without a record
  std::uint64_t samples = 0;         ///< of the steps up to last_step, each once
  std::uint64_t undone_samples = 0;  ///< of steps that were committed and undone again
  std::uint64_t skipped_steps = 0;   ///< that made no update
  std::uint64_t retried_steps = 0;   ///< that were computed more than once
  std::uint64_t fell_back_at = 0;    ///< FallBackRecord::at; 0 = nothing was undone
  double train_seconds = 0;          ///< from the first commit to the last, by the members' clocks
  double data_wait_seconds = 0;
  std::string last_digest;  ///< the newest that is known
  std::uint64_t digest_step = 0;
  std::optional<EvaluationRecord> evaluation;
  std::string last_checkpoint;
  std::set<std::uint64_t> checkpoints;  ///< steps of all that were reported
  std::vector<RecoveryRecord> recoveries;
  double evaluation_seconds = 0;  ///< between steps
  double checkpoint_seconds = 0;  ///< of the reporters, copying the state
  double waiting_seconds = 0;     ///< for members or a majority, or paused; since the first view
  std::optional<double> waiting_since;      ///< on the time axis
  std::optional<Spending> spending;         ///< the last one on record, even of an earlier part,
  double spending_t = 0;                    ///< and its time
  std::vector<MemberRecord> members;        ///< lines of members.jsonl
  std::uint64_t view = 0;                   ///< the last one
  std::uint32_t views = 0;                  ///< whose members differ from those of the view before
  std::vector<std::uint64_t> view_members;  ///< of the last one
  std::vector<WorkerStay> workers;
  std::set<std::uint64_t> present;  ///< members of the last view whose hosts are on record
  // The last restart undid the steps after `undone_after` of views up to `undone_views`.
  std::uint64_t undone_views = 0;
  std::uint64_t undone_after = 0;

  /// Undoes the steps after this one, whose checkpoints and evaluation forget_after() removes.
  /// Returns their number.
  std::uint64_t fall_back(std::uint64_t step, std::uint64_t samples_per_step);

  /// Goes back to the state after this step, the newest that is left. From the present view on the
  /// later steps are computed again. Returns the number of undone steps.
  std::uint64_t restart(std::uint64_t step, std::uint64_t samples_per_step);

  /// Whether the job went back to an earlier step after that view had committed this one. Its
  /// record then comes late, from a worker that was disconnected.
  [[nodiscard]] bool is_undone(std::uint64_t step, std::uint64_t in_view) const {
    return step > undone_after && in_view <= undone_views;
  }

  /// Handles an event of this kind: some kinds mean that the job computes no steps from `t` on.
  void on_event(const std::string& kind, double t);
  /// The job computes steps again from `t` on.
  void goes_on(double t);
  /// The total time of all recoveries; time in which they overlap counts once.
  [[nodiscard]] double recovery_seconds() const;

  /// Counts a step whose record has not been counted before.
  void add(const StepRecord& record);

  /// Returns false if the view is on record already. Does not count a view in `views` that only
  /// distributes the work anew.
  bool view_published(const ViewEvent& event);

  /// Records the members of a view that resumes after `committed`, and their hosts if they are
  /// known.
  void took_part(std::uint64_t committed, const ViewEvent& event);

  /// `workers`, where members that are still present have their steps up to now.
  [[nodiscard]] std::vector<WorkerStay> stays() const;

  /// The job has the state after this step, whose record has arrived.
  void reached(std::uint64_t step, const std::string& digest);

  /// The same for a step whose record, and earlier ones, may be lost with the members that had
  /// them.
  void has_state_of(std::uint64_t step, const std::string& digest);

  /// Forgets checkpoints and the evaluation of later steps, which are undone.
  void forget_after(std::uint64_t step);
};

/// Reads events.jsonl and metrics.jsonl. A torn last line is ignored; kCorrupt, with file and line,
/// if any other line is not a record.
[[nodiscard]] Result<RunHistory> read_run_history(const std::string& run_dir);

/// The history of a part that has just begun in the directory: only the costs of earlier parts.
[[nodiscard]] RunHistory history_of_new_part(const std::string& run_dir);

/// The position of `wall_clock` (seconds since 1970) on the time axis of a directory's records, but
/// not before the last records: wall clocks may be set back. 0 without records.
[[nodiscard]] double seconds_on_record(const std::string& run_dir, double wall_clock);

}  // namespace mayfly::engine
