#pragma once

// How long the process that started a job waits for its members after the end. Pure except look().

#include "base/time.hpp"

namespace mayfly::engine {

class CoordinatorProcess;
struct JobEnd;

/// How long the coordinator waits at the end of a job. Dismissed members still send their last
/// reports, and one of them the last checkpoint; they close their connections when they are done.
/// If a job that has begun is stopped or has too few workers, one of them writes the state only
/// then, which may take long and matters more than all other reports.
class LastReports {
 public:
  /// Facts that may extend the deadline.
  struct News {
    bool has_members = false;     // some member is still connected
    bool is_state_saved = false;  // a checkpoint of the job's last step is known
    bool is_receiving = false;    // a checkpoint is being received
    bool is_interrupted = false;  // since the end: the user does not want to wait for a state
  };

  /// To be constructed at the end of a job. `has_begun`: a view was formed, so that there is a
  /// state.
  LastReports(const JobEnd& end, bool has_begun, Instant now);

  /// Reads the news from `process`, on the calling thread.
  [[nodiscard]] static News look(CoordinatorProcess& process, bool is_interrupted);

  /// False when the coordinator need not wait any longer.
  [[nodiscard]] bool is_time_left(Instant now, const News& news);

 private:
  bool is_state_awaited_;
  Instant saved_by_;
  Instant deadline_;
};

}  // namespace mayfly::engine
