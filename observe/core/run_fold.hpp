#pragma once

// The records of a run, folded into the content of its page: curves, lanes of members and servers,
// recoveries, evaluations, checkpoints, money, and the division of the wall time. The same records
// give the same state whether they are added while the job runs or all at once afterwards, and
// whichever of the two files is read first; only the event of a start must be added before the
// steps of its part. Pure; one thread at a time.
//
// Times are seconds on the axis of the job, which begins with its first event: `t` of the records.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/core/curves.hpp"
#include "observe/core/members.hpp"
#include "observe/core/metrics_text.hpp"
#include "observe/core/servers.hpp"
#include "observe/core/step_profile.hpp"

namespace mayfly::observe {

struct RecoveryFact {
  double detected = 0;
  double told = 0, stopped = 0, formed = 0, synced = 0, step = 0;  ///< instants, as `detected`
  std::string cause;
  std::vector<std::uint64_t> members;
  std::uint64_t committed = 0;
  std::uint64_t view = 0;
  std::uint64_t redone_microbatches = 0;
  std::string detail;
};

/// A span of time in a state that concerns the whole job.
struct JobSpan {
  double from = 0;
  std::optional<double> to;  ///< nothing: it continues
  std::string kind;          ///< start, waiting, paused, ..., or between steps: evaluation,
                             ///< checkpoint
  std::string detail;
};

struct EvaluationFact {
  double t = 0;
  std::uint64_t step = 0;
  double top1 = 0;
  std::optional<double> loss;  ///< none if it is infinite or not a number
  double seconds = 0;          ///< duration until `t`, between two steps
  bool undone = false;         ///< the job has since gone back to before this step
};

struct CheckpointFact {
  double t = 0;
  std::uint64_t step = 0;
  std::string what;  ///< the event's kind
  std::string detail;
};

struct EventFact {
  double t = 0;
  std::string kind;
  std::optional<std::uint64_t> member;
  std::optional<std::uint64_t> step;
  std::string detail;
};

/// The job went back to an earlier state. The steps since that state are computed again, but not
/// recorded again.
struct RestartFact {
  double t = 0;
  std::uint64_t step = 0;    ///< after which it continued
  std::uint64_t undone = 0;  ///< steps
};

/// One start of the job in this directory: `mayfly train`, or `--resume`.
struct JobPart {
  double begin = 0;
  std::uint64_t metrics_bytes = 0;  ///< size of metrics.jsonl when it began
  bool has_view = false;
  std::optional<double> first_row, last_row;  ///< times of its steps
};

/// Counts of all records so far, which never decrease.
struct RunTotals {
  std::uint64_t steps = 0;  ///< also those that were undone
  std::uint64_t samples = 0;
  std::uint64_t undone = 0;  ///< steps
  std::uint64_t redone_microbatches = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t restarts = 0;  ///< of the coordinator
  std::optional<double> last_checkpoint;
  Durations step_seconds;
};

/// A part of the wall time so far. The kinds add up to it.
struct TimeShare {
  std::string kind;
  double seconds = 0;
};

class RunFold {
 public:
  /// Reads the text of config.toml; only the settings in kSettingsShown are kept.
  void config(std::string_view text);
  /// Reads the text of facts.json, with the steps and the batch of a program of the user's own, for
  /// which settings of Mayfly's own training have no meaning. Empty while there is none.
  void facts(std::string_view text);
  /// Adds one line of events.jsonl or metrics.jsonl, without its end. A line that is no record of a
  /// run is counted and skipped. `offset`: the position of the line in its file.
  void event(std::string_view line, std::uint64_t offset);
  void metric(std::string_view line, std::uint64_t offset);
  /// Adds one line of members.jsonl.
  void member(std::string_view line, std::uint64_t offset);
  /// Reads the text of summary.json; empty while there is none.
  void summary(std::string_view text);

  /// The steps that count, in ascending order, and the undone steps, in ascending order for each
  /// return to an earlier state.
  [[nodiscard]] const Curves& kept() const { return kept_; }
  [[nodiscard]] const Curves& undone() const { return undone_; }
  /// The first row of kept() that has changed since the last call; 0 at the first call.
  [[nodiscard]] std::size_t take_first_changed();

  /// The content of the page besides curves, as one line of JSON; `name` is that of the run.
  [[nodiscard]] std::string state_json(const std::string& name) const;
  /// True if a line of events.jsonl was a record of a run.
  [[nodiscard]] bool is_a_run() const { return !parts_.empty(); }
  [[nodiscard]] std::vector<TimeShare> time_shares() const;
  [[nodiscard]] double end() const;
  /// The axis' zero by the wall clock, in seconds since 1970; 0 without records.
  [[nodiscard]] double origin() const { return origin_.value_or(0); }

  [[nodiscard]] const Members& members() const { return members_; }
  [[nodiscard]] const Servers& servers() const { return servers_; }
  /// The profile of the part of the job that recorded steps last.
  [[nodiscard]] const StepProfile& step_profile() const { return step_profile_; }
  /// Whether `t` is in that part.
  [[nodiscard]] bool is_profiled(double t) const;
  [[nodiscard]] const RunTotals& totals() const { return totals_; }
  [[nodiscard]] const std::vector<RecoveryFact>& recoveries() const { return recoveries_; }
  [[nodiscard]] std::vector<JobSpan> spans() const;
  /// Evaluations and checkpoints between steps, as far as they are in the records of steps, and
  /// times in which undone steps were computed again ("undone").
  [[nodiscard]] std::vector<JobSpan> pauses_of_steps() const;
  /// The target of workers: from the setting `workers`, or a later order since the last start of
  /// the job; 0: not on record.
  [[nodiscard]] double workers_wanted() const;
  /// A setting that is a number; 0 if it is missing.
  [[nodiscard]] double setting_number(std::string_view name) const;
  /// "start", "running", "waiting", "paused" or "ended".
  [[nodiscard]] std::string phase() const;

 private:
  friend struct EventReader;
  friend class StateWriter;
  friend class MetricsReader;

  /// Facts about a row besides its values.
  struct RowNote {
    std::optional<double> seconds;  // since the previous commit of its member
    float checkpoint = 0;           // seconds of copying the state, at its end
  };

  void choose_settings();
  void profile(const boost::json::object& record, std::uint64_t offset, bool is_late);
  void undo_from(std::size_t row);
  void damaged(const char* file, std::uint64_t offset);
  void close_span(double t);
  [[nodiscard]] double end_of(const RestartFact& restart) const;

  using Settings = std::vector<std::pair<std::string, std::string>>;
  Settings configured_;
  Settings of_program_;
  Settings settings_;  // of both, those that the page shows
  std::string offers_;
  std::string summary_;
  std::optional<double> origin_;  // wall clock of the axis' zero
  std::vector<JobPart> parts_;
  double last_event_ = 0;
  Curves kept_;
  Curves undone_;
  std::vector<RowNote> kept_notes_;
  std::vector<RowNote> undone_notes_;
  std::size_t first_changed_ = 0;
  Members members_;
  Servers servers_;
  std::vector<RecoveryFact> recoveries_;
  std::vector<RestartFact> restarts_;
  std::vector<JobSpan> spans_;
  std::vector<EvaluationFact> evaluations_;
  std::vector<CheckpointFact> checkpoints_;
  std::vector<EventFact> events_;
  std::uint64_t undone_steps_ = 0;               // from the records of events
  std::optional<std::uint64_t> workers_wanted_;  // from events of the last part
  RunTotals totals_;
  StepProfile step_profile_;
  std::size_t profiled_parts_ = 1;  // the last of these is that of step_profile_
  std::uint64_t damaged_ = 0;
  std::string first_damaged_;
};

/// Settings that the page may show. Others may hold secrets or commands.
extern const std::set<std::string, std::less<>> kSettingsShown;

}  // namespace mayfly::observe
