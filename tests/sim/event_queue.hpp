#pragma once

// Simulated time: events run in the order of their instants, and in the order they were scheduled
// if these are equal. Nothing else decides what happens next, so a run is a function of its seed.

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/check.hpp"
#include "base/time.hpp"

namespace mayfly::sim {

class EventQueue {
 public:
  [[nodiscard]] Instant now() const { return now_; }
  void after(Duration delay, std::function<void()> event) {
    ENSURE(delay >= Duration::zero(), "nothing can be scheduled in the past");
    events_.emplace(std::pair{now_ + delay, ++scheduled_}, std::move(event));
  }
  /// Runs the next event; false if there is none.
  bool run_one() {
    if (events_.empty()) {
      return false;
    }
    const auto next = events_.begin();
    now_ = next->first.first;
    const std::function<void()> event = std::move(next->second);
    events_.erase(next);
    event();
    return true;
  }

 private:
  Instant now_;
  std::uint64_t scheduled_ = 0;
  std::map<std::pair<Instant, std::uint64_t>, std::function<void()>> events_;
};

}  // namespace mayfly::sim
