#pragma once

// The end of a job and the coordinator's other news, for the thread that waits for them.

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "elastic/core/coordinator_events.hpp"

namespace mayfly::engine {

/// The end of a job, as the coordinator decided it.
struct JobEnd {
  elastic::Outcome outcome = elastic::Outcome::kDone;
  std::string detail;
  /// The job failed before anything was computed, for a reason that was reported to the user, who
  /// has to correct it.
  bool was_refused = false;
};

/// Any thread, except where a function says otherwise.
class JobNews {
 public:
  /// The coordinator has news: see elastic::CoordinatorObserver::on_news().
  void announce();
  /// The job has ended.
  void end_with(JobEnd end);
  /// The end of the job; nothing while it runs.
  [[nodiscard]] std::optional<JobEnd> end() const;
  /// Waits until the job has ended, or there was news since the last call, at most until the
  /// deadline. Returns end(). One thread.
  std::optional<JobEnd> wait(Instant deadline);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<JobEnd> end_;
  bool has_changed_ = false;
};

}  // namespace mayfly::engine
