#pragma once

// Helpers for tests whose members are threads of one process.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/time.hpp"
#include "collectives/group.hpp"

namespace mayfly::collectives::test {

/// The rendezvous of all views; the prefixes of their keys differ.
class MemoryStore final : public RendezvousStore {
 public:
  /// The delay of an answer, as from a store on another host.
  Duration answers_after{};

  Result<void> set(const std::string& key, ByteSpan value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = Bytes(value.begin(), value.end());
    changed_.notify_all();
    return {};
  }
  Result<Bytes> get(const std::string& key, Instant deadline) override {
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.ns)};
    const Instant answer = monotonic_now() + answers_after;
    std::this_thread::sleep_for(std::min(answer, deadline) - monotonic_now());
    std::unique_lock lock(mutex_);
    if (answer > deadline ||
        !changed_.wait_until(lock, until, [&] { return values_.contains(key); })) {
      return Error{Errc::kDeadline, "nobody has set " + key};
    }
    return values_.at(key);
  }
  /// Whether a key that ends in `end` is set.
  bool has(const std::string& end) {
    const std::lock_guard lock(mutex_);
    return std::any_of(values_.begin(), values_.end(),
                       [&](const auto& entry) { return entry.first.ends_with(end); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes> values_;
};

/// A deadline that only a hang can reach.
[[nodiscard]] inline Instant far() {
  return monotonic_now() + seconds(60);
}

/// Runs `body(rank)` for every rank below `size` on a thread of its own and joins them all.
inline void on_all(std::uint32_t size, const std::function<void(std::uint32_t)>& body) {
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back(body, rank);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace mayfly::collectives::test
