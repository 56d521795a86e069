#include "engine/run/job_news.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::engine {

void JobNews::announce() {
  {
    const std::lock_guard lock(mutex_);
    has_changed_ = true;
  }
  changed_.notify_all();
}

void JobNews::end_with(JobEnd end) {
  {
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
  }
  changed_.notify_all();
}

std::optional<JobEnd> JobNews::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

std::optional<JobEnd> JobNews::wait(Instant deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::max(Duration(0), deadline - monotonic_now()),
                    [this] { return end_.has_value() || has_changed_; });
  has_changed_ = false;
  return end_;
}

}  // namespace mayfly::engine
