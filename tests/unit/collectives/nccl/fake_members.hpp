#pragma once

// Members of an NCCL group on fake devices, each with a transport of its own, in one process.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "collectives/nccl/nccl_transport.hpp"
#include "tests/unit/collectives/nccl/fake_nccl.hpp"

namespace mayfly::collectives::test {

/// The rendezvous of all views.
class LocalStore final : public RendezvousStore {
 public:
  /// How long an answer is on its way, as from a store on another host.
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
  /// Whether a key that ends so is set.
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
inline Instant late() {
  return monotonic_now() + seconds(60);
}

/// Runs `body(rank)` on a thread for each rank and joins them.
inline void on_each(std::uint32_t size, const std::function<void(std::uint32_t)>& body) {
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back(body, rank);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// Waits, yielding, for what another thread is about to do.
inline void until(const std::function<bool()>& true_at_last) {
  const Instant hang = late();
  while (!true_at_last() && monotonic_now() < hang) {
    std::this_thread::yield();
  }
}

struct FakeMembers {
  explicit FakeMembers(std::uint32_t size) {
    for (std::uint32_t i = 0; i < size; ++i) {
      auto fake = make_fake_nccl();
      fakes.push_back(fake.get());
      transports.push_back(make_nccl_transport(std::move(fake), "nccl:test").value());
    }
  }

  /// Member `rank` of a view of the first `size` members, whose ids are 100 and up.
  [[nodiscard]] GroupSpec spec(std::uint64_t view, std::uint32_t rank, std::uint32_t size) {
    GroupSpec made;
    made.view = ViewId{view};
    made.rank = Rank{rank};
    made.key = view + 1000;
    made.store = &store;
    for (std::uint32_t i = 0; i < size; ++i) {
      made.peers.push_back({MemberId{100 + i}, "nccl:test"});
    }
    return made;
  }

  [[nodiscard]] std::vector<std::unique_ptr<DeviceGroup>> form(std::uint64_t view,
                                                               std::uint32_t size) {
    std::vector<std::unique_ptr<DeviceGroup>> groups(size);
    on_each(size, [&](std::uint32_t rank) {
      auto formed = transports[rank]->form(spec(view, rank, size), late());
      groups[rank].reset(dynamic_cast<DeviceGroup*>(formed.value().release()));
    });
    return groups;
  }

  LocalStore store;
  std::vector<FakeNccl*> fakes;  // owned by the transports
  std::vector<std::unique_ptr<Transport>> transports;
};

}  // namespace mayfly::collectives::test
