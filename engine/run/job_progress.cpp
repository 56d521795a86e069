#include "engine/run/job_progress.hpp"

#include <algorithm>
#include <utility>

#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {
namespace {

/// No member has committed such a step: its claim is false, and the steps before it would all be
/// noted as missing.
bool is_beyond_the_end(const Job& job, std::uint64_t step) {
  return job.total_steps > 0 && step > job.total_steps;
}

}  // namespace

JobProgress::JobProgress(const Job& job, RunHistory history)
    : job_(job),
      servers_count_steps_(uses_parameter_servers(job.config)),
      is_continued_(history.views > 0),
      history_(std::move(history)) {}

void JobProgress::noted(const std::string& kind, double t) {
  const std::lock_guard lock(mutex_);
  history_.on_event(kind, t);
}

std::optional<JobProgress::ViewChange> JobProgress::view_published(const ViewEvent& view, double t,
                                                                   bool restarts) {
  const std::lock_guard lock(mutex_);
  ViewChange change{step_at(view.committed), 0};
  const bool is_new = history_.view_published(view);
  history_.goes_on(t);
  if (!is_new) {
    return std::nullopt;
  }
  if (!servers_count_steps_) {
    if (restarts) {
      change.undone = history_.restart(change.committed, job_.config.global_batch);
      forget_checkpoints_after(change.committed);
    }
    history_.has_state_of(change.committed, "");
  }
  history_.took_part(change.committed, view);
  return change;
}

RecoveryRecord JobProgress::recovered(const elastic::Recovery& recovery, double detected) {
  RecoveryRecord record = recovery_record(recovery, detected);
  const std::lock_guard lock(mutex_);
  record.step = step_at(record.step);
  recoveries_.push_back(recovery);
  recoveries_.back().committed = Step{record.step};
  history_.recoveries.push_back(record);
  return record;
}

JoinRecord JobProgress::joined(const elastic::Join& join, double connected) {
  JoinRecord record = join_record(join, connected);
  const std::lock_guard lock(mutex_);
  record.admitted_after = step_at(record.admitted_after);
  record.started_after = step_at(record.started_after);
  joins_.push_back(join);
  return record;
}

bool JobProgress::committed(const StepRecord& step, Instant now) {
  const std::lock_guard lock(mutex_);
  if (history_.is_undone(step.step, step.view) || is_beyond_the_end(job_, step.step)) {
    return false;
  }
  if (step.step >= history_.current_step) {
    history_.reached(step.step, step.digest);
  }
  if (step.step <= history_.last_step && !history_.missing.contains(step.step)) {
    return false;  // repeated after a change of the view or of the coordinator
  }
  last_commit_ = now;
  first_commit_ = history_.last_step == 0 ? last_commit_ : first_commit_;
  images_per_second_ = step.images_per_second;
  history_.add(step);
  return true;
}

bool JobProgress::evaluated(const EvaluationRecord& evaluation) {
  const std::lock_guard lock(mutex_);
  if (history_.evaluation.has_value() && history_.evaluation->step >= evaluation.step) {
    return false;
  }
  history_.evaluation = evaluation;
  history_.evaluation_seconds += evaluation.ms / 1000;
  return true;
}

bool JobProgress::checkpointed(const CheckpointRecord& checkpoint) {
  const std::lock_guard lock(mutex_);
  if (!checkpoint.ok) {
    unsaved_ = checkpoint;
    return true;
  }
  if (!history_.checkpoints.insert(checkpoint.step).second) {
    return false;  // repeated to a coordinator that was started again
  }
  if (!newest_received_ || value(*newest_received_) < checkpoint.step) {
    history_.last_checkpoint = checkpoint.text;
  }
  return true;
}

void JobProgress::received(const ReceivedCheckpoint& checkpoint) {
  const std::lock_guard lock(mutex_);
  newest_received_ = checkpoint.step;
  history_.last_checkpoint = checkpoint.path;
}

void JobProgress::has_state(const StateRecord& state) {
  const std::lock_guard lock(mutex_);
  if (state.step >= history_.current_step && !is_beyond_the_end(job_, state.step)) {
    history_.has_state_of(state.step, state.digest);
  }
}

std::optional<FallBackRecord> JobProgress::fell_back(FallBackRecord reported) {
  const std::lock_guard lock(mutex_);
  if (reported.at <= history_.fell_back_at) {
    return std::nullopt;  // repeated by the follower of a lost shard
  }
  history_.fell_back_at = reported.at;
  reported.undone_steps = history_.fall_back(reported.step, job_.config.global_batch);
  reported.undone_samples = reported.undone_steps * job_.config.global_batch;
  history_.forget_after(reported.step);
  forget_checkpoints_after(reported.step);
  return reported;
}

/// The later steps are undone. With the mutex.
void JobProgress::forget_checkpoints_after(std::uint64_t step) {
  if (newest_received_ && value(*newest_received_) > step) {
    newest_received_.reset();
  }
  if (unsaved_ && unsaved_->step > step) {
    unsaved_.reset();
  }
}

void JobProgress::ended(double t) {
  const std::lock_guard lock(mutex_);
  history_.goes_on(t);
}

std::uint64_t JobProgress::last_step() const {
  const std::lock_guard lock(mutex_);
  return history_.current_step;
}

bool JobProgress::has_checkpoint(Step step) const {
  const std::lock_guard lock(mutex_);
  return history_.checkpoints.contains(value(step));
}

std::string JobProgress::last_checkpoint() const {
  const std::lock_guard lock(mutex_);
  return history_.last_checkpoint;
}

double JobProgress::images_per_second() const {
  const std::lock_guard lock(mutex_);
  return images_per_second_;
}

std::vector<elastic::Recovery> JobProgress::recoveries() const {
  const std::lock_guard lock(mutex_);
  return recoveries_;
}

std::vector<elastic::Join> JobProgress::joins() const {
  const std::lock_guard lock(mutex_);
  return joins_;
}

StepSet JobProgress::missing_records() const {
  const std::lock_guard lock(mutex_);
  return history_.missing;
}

std::optional<std::string> JobProgress::unsaved_state() const {
  const std::lock_guard lock(mutex_);
  return engine::unsaved_state(history_, job_.config.run_dir, newest_received_, unsaved_);
}

Summary JobProgress::summary() const {
  const std::lock_guard lock(mutex_);
  // By the clock of this process, unless the first steps were reported to an earlier one.
  const double train_seconds =
      is_continued_ ? history_.train_seconds : to_seconds(last_commit_ - first_commit_);
  return summary_of(job_, history_, train_seconds);
}

/// The step of an event. Members that train with parameter servers do not count the steps.
std::uint64_t JobProgress::step_at(std::uint64_t of_members) const {
  return servers_count_steps_ ? std::max(history_.current_step, history_.start.step) : of_members;
}

}  // namespace mayfly::engine
