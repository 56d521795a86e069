#pragma once

// Simulated time: events run in the order of their instants, and in the order they were scheduled
// if these are equal. Nothing else decides what happens next, so a run is a function of its seed.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/time.hpp"
#include "tests/sim/callback.hpp"

namespace mayfly::sim {

class EventQueue {
 public:
  using Event = Callback<288>;

  [[nodiscard]] Instant now() const { return now_; }
  void after(Duration delay, Event event) {
    ENSURE(delay >= Duration::zero(), "nothing can be scheduled in the past");
    const std::size_t slot = new_slot();
    events_[slot] = std::move(event);
    heap_.push_back({now_ + delay, ++scheduled_, slot});
    std::push_heap(heap_.begin(), heap_.end(), is_later);
  }
  /// Runs the next event; false if there is none.
  bool run_one() {
    if (heap_.empty()) {
      return false;
    }
    std::pop_heap(heap_.begin(), heap_.end(), is_later);
    const Entry next = heap_.back();
    heap_.pop_back();
    now_ = next.when;
    Event event = std::move(events_[next.slot]);
    free_.push_back(next.slot);
    event();
    return true;
  }

 private:
  struct Entry {
    Instant when;
    std::uint64_t order = 0;
    std::size_t slot = 0;
  };
  static bool is_later(const Entry& one, const Entry& other) {
    return std::pair(one.when, one.order) > std::pair(other.when, other.order);
  }
  std::size_t new_slot() {
    if (free_.empty()) {
      events_.emplace_back();
      return events_.size() - 1;
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  Instant now_;
  std::uint64_t scheduled_ = 0;
  std::vector<Entry> heap_;
  std::vector<Event> events_;  // by slot
  std::vector<std::size_t> free_;
};

}  // namespace mayfly::sim
