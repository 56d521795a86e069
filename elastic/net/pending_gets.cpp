#include "elastic/net/pending_gets.hpp"

#include <algorithm>
#include <chrono>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

const Error kGone{Errc::kPeerLost, "this worker is no member any more"};

}  // namespace

Result<void> PendingGets::expect(ViewId view, const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (ended_) {
    return kGone;
  }
  ++slots_[Key{view, key}].waiting;
  return {};
}

Result<Bytes> PendingGets::wait(ViewId view, const std::string& key, Instant deadline) {
  std::unique_lock lock(mutex_);
  const auto slot = slots_.find(Key{view, key});
  ENSURE(slot != slots_.end(), "expect() comes before wait()");
  const auto over = [&] { return last_ended_ && *last_ended_ >= view; };
  const auto ready = [&] { return slot->second.value.has_value() || ended_ || over(); };
  // On Linux steady_clock is CLOCK_MONOTONIC, the clock of every Instant an adapter sees.
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.ns)};
  const bool in_time = changed_.wait_until(lock, until, ready);
  Result<Bytes> result = Error{Errc::kDeadline, "no member set '" + key + "' in time"};
  if (slot->second.value) {
    result = *slot->second.value;
  } else if (in_time && ended_) {
    result = kGone;
  } else if (in_time) {
    result = Error{Errc::kAborted, "view " + std::to_string(mayfly::value(view)) + " is over"};
  }
  if (--slot->second.waiting == 0) {
    slots_.erase(slot);
  }
  return result;
}

void PendingGets::answer(const StoreValue& value) {
  const std::lock_guard lock(mutex_);
  if (const auto slot = slots_.find(Key{value.view, value.key}); slot != slots_.end()) {
    slot->second.value = value.value;
    changed_.notify_all();
  }
}

void PendingGets::end_views_up_to(ViewId view) {
  const std::lock_guard lock(mutex_);
  last_ended_ = last_ended_ ? std::max(*last_ended_, view) : view;
  changed_.notify_all();
}

void PendingGets::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

std::vector<StoreGet> PendingGets::unanswered() const {
  const std::lock_guard lock(mutex_);
  std::vector<StoreGet> gets;
  for (const auto& [key, slot] : slots_) {
    const bool is_over = last_ended_ && *last_ended_ >= key.first;
    if (!slot.value && !is_over) {
      gets.push_back({key.first, key.second});
    }
  }
  return gets;
}

}  // namespace mayfly::elastic
