#pragma once

// How long to look again and again before sleeping in the kernel. Waking a core that has gone idle
// takes tens of microseconds, much longer than most waits inside an all-reduce of a quiet machine;
// but a thread that spins in vain takes the core from whoever it waits for. So the window follows
// what happens, as the kernel's own halt polling does: it grows when a sleep turned out to be
// shorter than the longest window, and shrinks when a sleep was long. Each look first gives the
// core to whoever is next in line for it.

#include <cstddef>

#include "base/time.hpp"

namespace mayfly::collectives {

/// Cores that this process may use.
[[nodiscard]] std::size_t usable_cores();

class SpinWindow {
 public:
  /// Something has moved: the next wait begins now.
  void start() { waiting_since_ = {}; }
  /// True: look again. False: sleep now.
  [[nodiscard]] bool may_spin();
  /// Around a sleep.
  void slept_from();
  void slept_until();

 private:
  Duration window_{};
  Instant waiting_since_{};  // zero: not known yet
  Instant sleeping_since_{};
};

}  // namespace mayfly::collectives
