#pragma once

#include <atomic>

#include "base/net/wake_up.hpp"

namespace mayfly::collectives {

/// A flag that, once raised, stays raised, and that a thread sleeping in poll() can wait for too.
/// Shared by a transport or group and by those that may have to stop it. Any thread.
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

}  // namespace mayfly::collectives
