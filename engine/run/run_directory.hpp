#pragma once

// The files of one run: config.toml, events.jsonl, metrics.jsonl, members.jsonl, summary.json,
// logs/, checkpoints/, tb/, and plan.json if the job was started from a plan. Only the
// coordinator's process writes here (workers write their logs and checkpoints into the
// sub-folders). Lines are complete: a crash can only lose the last one. If a coordinator dies, its
// successor continues the job from these files.

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/config/config.hpp"
#include "engine/run/line_file.hpp"
#include "engine/run/member_record.hpp"
#include "engine/run/records.hpp"
#include "engine/run/run_history.hpp"
#include "engine/run/summary.hpp"
#include "engine/run/tensorboard.hpp"

namespace mayfly::engine {

class RunDirectory {
 public:
  /// Creates the folder tree at `config.run_dir` and writes config.toml. kInvalidInput if the
  /// folder already holds a run (events.jsonl exists) and `config.resume` does not point into it,
  /// if a folder in it holds one, or if there is no valid plan at `config.plan`; kIo. A run that is
  /// resumed keeps the plan that it has. `start`: the state that the job is resumed from; it is
  /// recorded.
  static Result<std::unique_ptr<RunDirectory>> create(const JobConfig& config,
                                                      const StartingPoint& start = {});
  /// Opens the directory of a job that is continued. Refuses nothing, and writes nothing except
  /// that it cuts off a torn last line.
  static Result<std::unique_ptr<RunDirectory>> reopen(const JobConfig& config);

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Seconds on the time axis of the directory's records, rounded to microseconds. The axis begins
  /// with the first record and follows the monotonic clock; if a process continues the records of
  /// another one, the time between the two is measured by the wall clock. Any thread.
  [[nodiscard]] double seconds_at(Instant when) const;

  // One thread at a time. A full disk is logged once and does not stop the job.
  /// Appends to events.jsonl, with the time of day and `t`: the seconds at `when`, but not less
  /// than that of the event before.
  void event(const std::string& kind, const boost::json::object& fields,
             Instant when = monotonic_now());
  /// Appends to metrics.jsonl and to TensorBoard's curves. A record without `t` gets the present
  /// time.
  void metric(const StepRecord& record);
  /// Appends to members.jsonl.
  void members(const std::vector<MemberRecord>& lines);
  /// Writes an event and points of the curves.
  void evaluation(const EvaluationRecord& record, Instant when = monotonic_now());
  /// Writes summary.json.
  [[nodiscard]] Result<void> summary(const Summary& summary);

 private:
  static Result<std::unique_ptr<RunDirectory>> open(const JobConfig& config);
  void add_curves(std::uint64_t step, std::span<const tensorboard::Scalar> scalars);
  void report(const Result<void>& written);

  std::string path_;
  Instant opened_ = monotonic_now();
  double opened_seconds_ = 0;      // on the time axis
  double last_event_seconds_ = 0;  // the same
  std::unique_ptr<LineFile> events_;
  std::unique_ptr<LineFile> metrics_;
  std::unique_ptr<LineFile> members_;
  std::unique_ptr<tensorboard::EventFile> curves_;  // null if switched off
  bool error_logged_ = false;
};

/// The path of a run directory's view log.
[[nodiscard]] std::string view_log_path(const std::string& run_dir);
/// The path of its summary, which is written last, and removed when a new part begins.
[[nodiscard]] std::string summary_path(const std::string& run_dir);

/// Whether the job has not ended according to the directory's view log, or has ended without a
/// summary: then the coordinator died before it had dismissed all members, released servers and
/// written the summary. A log that cannot be read counts as unfinished: opening it will report the
/// error.
[[nodiscard]] bool holds_unfinished_job(const std::string& run_dir);
[[nodiscard]] bool has_summary(const std::string& run_dir);
/// Whether there is a summary whose outcome is "done". False if it cannot be read.
[[nodiscard]] bool has_done_summary(const std::string& run_dir);

/// The configuration that the job was started with.
[[nodiscard]] Result<JobConfig> config_of_run(const std::string& run_dir);

/// `asked`, in which "latest" is replaced by the folders that it meant when the job was started.
/// kInvalidInput, naming the first different setting, if the two describe different jobs or
/// different ways to run them.
[[nodiscard]] Result<JobConfig> config_to_continue_with(const JobConfig& asked,
                                                        const JobConfig& recorded);

/// The port in the directory's `coordinator` file; 0 if there is none.
[[nodiscard]] std::uint16_t port_of_run(const std::string& run_dir);
/// The same of any file that holds one HOST:PORT.
[[nodiscard]] std::uint16_t port_in(const std::string& path);

}  // namespace mayfly::engine
