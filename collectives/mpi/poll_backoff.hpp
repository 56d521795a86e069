#pragma once

// How a thread that has to poll waits without taking the core from those who have something to do.

#include <sched.h>

#include <chrono>
#include <thread>

#include "base/time.hpp"

namespace mayfly::collectives {

/// Call pause() after each poll that found nothing and moved() after each that did. The first polls
/// follow each other at once, because most answers are on their way; then other threads go first;
/// after a millisecond without an answer somebody is late, and the thread sleeps between polls.
class PollBackoff {
 public:
  void moved() {
    polls_ = 0;
    late_ = false;
  }
  void pause() {
    ++polls_;
    if (polls_ < kEager) {
      return;
    }
    if (late_) {
      std::this_thread::sleep_for(kNap);
      return;
    }
    ::sched_yield();
    if (polls_ == kEager) {
      since_ = monotonic_now();
    } else if (polls_ % kClockEvery == 0) {
      late_ = monotonic_now() - since_ > kPatience;
    }
  }

 private:
  static constexpr unsigned kEager = 50;
  static constexpr unsigned kClockEvery = 16;
  static constexpr Duration kPatience = milliseconds(1);
  static constexpr std::chrono::microseconds kNap{50};

  unsigned polls_ = 0;
  Instant since_;  // of the first poll that gave way
  bool late_ = false;
};

}  // namespace mayfly::collectives
