#pragma once

#include <atomic>

#include "base/unique_fd.hpp"

namespace mayfly {

/// Lets any thread end another thread's poll(): an eventfd that becomes readable and stays so until
/// it is cleared. Ends the process if no descriptor is left. Any thread.
class WakeUp {
 public:
  WakeUp();

  /// Makes fd() readable. Never fails, never waits.
  void notify() const noexcept;
  /// Makes fd() unreadable until the next notify(). The polling thread calls this before it checks
  /// for news, so that it misses none.
  void clear() const noexcept;
  /// To poll for POLLIN.
  [[nodiscard]] int fd() const { return event_.get(); }

 private:
  UniqueFd event_;
};

/// A flag that, once raised, stays raised, and that a thread sleeping in poll() can also wait for.
/// For example it is shared by a group and by the threads that may have to stop the group. Any
/// thread.
class AbortSignal {
 public:
  AbortSignal() = default;
  AbortSignal(const AbortSignal&) = delete;
  AbortSignal& operator=(const AbortSignal&) = delete;

  void raise() noexcept {
    raised_.store(true, std::memory_order_release);
    event_.notify();
  }
  [[nodiscard]] bool raised() const { return raised_.load(std::memory_order_acquire); }
  /// Readable once raised; never read from it.
  [[nodiscard]] int fd() const { return event_.fd(); }

 private:
  std::atomic<bool> raised_{false};
  WakeUp event_;  // never cleared
};

}  // namespace mayfly
