#include "engine/training/checkpoint_schedule.hpp"

namespace mayfly::engine {

bool is_digest_step(const Job& job, Step step) {
  const std::uint64_t every = job.config.digest_every;
  return value(step) == job.total_steps || (every > 0 && value(step) % every == 0);
}

bool is_checkpoint_step(const Job& job, Step step) {
  const std::uint64_t every = job.config.checkpoint_every;
  return every > 0 && step != Step{} && value(step) % every == 0 && value(step) < job.total_steps;
}

CheckpointSchedule::CheckpointSchedule(const Job& job, Step committed)
    : job_(job), saved_(committed), saved_at_(monotonic_now()) {}

bool CheckpointSchedule::take(Step committed, const ViewPart& part) {
  const bool is_wanted = is_checkpoint_step(job_, committed) || is_due_by_time(committed, part);
  if (!is_wanted || saved_ == committed) {
    return false;
  }
  saved_ = committed;
  saved_at_ = monotonic_now();
  return true;
}

bool CheckpointSchedule::is_due_by_time(Step committed, const ViewPart& part) const {
  const double minutes = job_.config.checkpoint_minutes;
  const bool is_old = minutes > 0 && monotonic_now() - saved_at_ >=
                                         Duration(static_cast<std::int64_t>(minutes * 60e9));
  return is_old && part.is_reporter && committed != Step{} && is_digest_step(job_, committed);
}

}  // namespace mayfly::engine
