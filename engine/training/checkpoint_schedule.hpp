#pragma once

// At which steps a job's members compare their whole states, and at which the reporter writes a
// checkpoint. Trainer thread only.

#include "base/ids.hpp"
#include "base/time.hpp"
#include "engine/job/job.hpp"
#include "engine/training/view_part.hpp"

namespace mayfly::engine {

/// The digest of the state after this step goes on record.
[[nodiscard]] bool is_digest_step(const Job& job, Step step);
/// --checkpoint-every names this step. Not the last one: its checkpoint is part of the job's end.
[[nodiscard]] bool is_checkpoint_step(const Job& job, Step step);

class CheckpointSchedule {
 public:
  /// A checkpoint of `committed` is written, or need not be. `job` outlives it.
  CheckpointSchedule(const Job& job, Step committed);

  /// The members agree on the state after `committed`: whether a checkpoint of it is to be written,
  /// if this member is the reporter. It is taken as written then. By time the reporter alone
  /// decides, at a step at which the whole state is compared anyway.
  [[nodiscard]] bool take(Step committed, const ViewPart& part);

 private:
  [[nodiscard]] bool is_due_by_time(Step committed, const ViewPart& part) const;

  const Job& job_;
  Step saved_{};
  Instant saved_at_;  // or this began
};

}  // namespace mayfly::engine
