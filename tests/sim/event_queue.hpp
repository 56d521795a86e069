#pragma once

// Simulated time: events run in the order of their instants; events with equal instants run in the
// order in which they were scheduled. Nothing else decides which event is next, so a run is a
// function of its seed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/time.hpp"

namespace mayfly::sim {

/// A function object that can only be moved. The callable in it must fit into `Size` bytes and must
/// not throw when it is moved.
template <std::size_t Size, typename... Arguments>
class Callback {
 public:
  Callback() = default;
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, Callback>>>
  Callback(F&& what) {  // NOLINT: as std::function
    using Stored = std::decay_t<F>;
    static_assert(sizeof(Stored) <= Size && alignof(Stored) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Stored>);
    new (storage_) Stored(std::forward<F>(what));
    operations_ = &kOperations<Stored>;
  }
  Callback(Callback&& other) noexcept { take(other); }
  Callback& operator=(Callback&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Callback() { reset(); }

  void operator()(Arguments... arguments) { operations_->call(storage_, arguments...); }

 private:
  struct Operations {
    void (*call)(void*, Arguments...);
    void (*move)(void* from, void* to);  // also destroys the moved object
    void (*destroy)(void*);
  };
  template <typename Stored>
  static constexpr Operations kOperations = {
      [](void* at, Arguments... arguments) { (*static_cast<Stored*>(at))(arguments...); },
      [](void* from, void* to) {
        new (to) Stored(std::move(*static_cast<Stored*>(from)));
        static_cast<Stored*>(from)->~Stored();
      },
      [](void* at) { static_cast<Stored*>(at)->~Stored(); }};

  void take(Callback& other) {
    operations_ = std::exchange(other.operations_, nullptr);
    if (operations_ != nullptr) {
      operations_->move(other.storage_, storage_);
    }
  }
  void reset() {
    if (operations_ != nullptr) {
      std::exchange(operations_, nullptr)->destroy(storage_);
    }
  }

  alignas(std::max_align_t) std::byte storage_[Size];
  const Operations* operations_ = nullptr;
};

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
  std::vector<Event> events_;  // indexed by slot
  std::vector<std::size_t> free_;
};

}  // namespace mayfly::sim
