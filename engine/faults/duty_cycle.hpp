#pragma once

// Stops this process (SIGSTOP) for a share of each 50 ms, as a crowded or throttled machine would:
// everything in it stands still, not only what computes. A small child process does it, which owns
// no descriptor and ends with us.

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly::engine {

class DutyCycle {
 public:
  static constexpr Duration kPeriod = milliseconds(50);

  DutyCycle() = default;
  DutyCycle(const DutyCycle&) = delete;
  DutyCycle& operator=(const DutyCycle&) = delete;
  ~DutyCycle();

  /// Starts the child. The calling thread must live as long as the process. kIo.
  [[nodiscard]] Result<void> start();
  /// From now on this share (0 to 0.95) of each period. Any thread, after start().
  void set_share(double share);

 private:
  using Permille = std::atomic<std::uint32_t>;
  static_assert(Permille::is_always_lock_free, "two processes share it");

  Permille* share_ = nullptr;  // in memory that the child sees
  pid_t child_ = -1;
};

}  // namespace mayfly::engine
