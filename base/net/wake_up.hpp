#pragma once

#include "base/unique_fd.hpp"

namespace mayfly {

/// Lets any thread end another one's poll(): an eventfd that becomes readable and stays so until it
/// is cleared. Ends the process if no descriptor is left. Any thread.
class WakeUp {
 public:
  WakeUp();

  /// Makes fd() readable. Never fails, never waits.
  void notify() const noexcept;
  /// Makes fd() unreadable until the next notify(). The thread that polls it calls this before it
  /// looks for the news, so that none is missed.
  void clear() const noexcept;
  /// To poll for POLLIN.
  [[nodiscard]] int fd() const { return event_.get(); }

 private:
  UniqueFd event_;
};

}  // namespace mayfly
