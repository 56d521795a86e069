#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "base/time.hpp"

namespace mayfly::collectives {

/// What other threads tell the one that drives a communicator: stop, or look again. Any thread.
class CommSignal {
 public:
  /// Sticky.
  void abort() noexcept {
    aborted_.store(true, std::memory_order_release);
    notify();
  }
  [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// Ends a sleep, or the next one if nobody sleeps.
  void notify() noexcept {
    const std::lock_guard lock(mutex_);
    news_ = true;
    changed_.notify_all();
  }
  /// Until there is news, or for `at_most`. Zero: just lets other threads run.
  void sleep(Duration at_most);
  /// Until there is news.
  void sleep();

 private:
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = false;  // guarded by mutex_
};

}  // namespace mayfly::collectives
