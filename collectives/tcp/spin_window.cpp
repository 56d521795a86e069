#include "collectives/tcp/spin_window.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace mayfly::collectives {
namespace {

constexpr Duration kWindowMax = std::chrono::microseconds(100);
constexpr Duration kWindowMin = std::chrono::microseconds(10);  // less is not worth it: none

}  // namespace

std::size_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0
             ? static_cast<std::size_t>(CPU_COUNT(&cores))
             : 1;
}

bool SpinWindow::may_spin() {
  if (window_ < kWindowMin) {
    return false;
  }
  const Instant now = monotonic_now();
  if (waiting_since_ == Instant{}) {
    waiting_since_ = now;
  }
  if (now - waiting_since_ >= window_) {
    return false;
  }
  ::sched_yield();
  return true;
}

void SpinWindow::slept_from() {
  sleeping_since_ = monotonic_now();
}

void SpinWindow::slept_until() {
  const bool was_short = monotonic_now() - sleeping_since_ < kWindowMax;
  window_ = was_short ? std::min(std::max(window_ * 2, kWindowMin), kWindowMax) : window_ / 2;
  start();
}

}  // namespace mayfly::collectives
