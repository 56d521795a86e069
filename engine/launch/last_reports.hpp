#pragma once

// How long those who started a job wait for its members when it has ended. Pure but for look().

#include "base/time.hpp"

namespace mayfly::engine {

class CoordinatorProcess;
struct JobEnd;

/// How long the coordinator waits at the end of a job. Dismissed members still send their last
/// reports, and one of them the last checkpoint; they close their connections when they are done.
/// If a job that has begun is stopped or has too few workers, one of them writes the state only
/// now, which may take long and is more important than all other reports.
class LastReports {
 public:
  /// What may put off the deadline.
  struct News {
    bool has_members = false;     // some member is still connected
    bool is_state_saved = false;  // a checkpoint of the job's last step is known
    bool is_receiving = false;    // a checkpoint is coming in
    bool is_interrupted = false;  // since the end: the user does not want to wait for a state
  };

  /// At the end of a job. `has_begun`: a first view was formed, so that there is a state.
  LastReports(const JobEnd& end, bool has_begun, Instant now);

  /// The news of a coordinator on this thread.
  [[nodiscard]] static News look(CoordinatorProcess& process, bool is_interrupted);

  /// False when the coordinator need not wait any longer.
  [[nodiscard]] bool is_time_left(Instant now, const News& news);

 private:
  bool is_state_awaited_;
  Instant saved_by_;
  Instant deadline_;
};

}  // namespace mayfly::engine
