#pragma once

// The threads that carry out the decisions of ProviderDriver (provider_driver.hpp): calls to the
// provider, each of which may take minutes, and meanwhile the writing of records.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

/// One thread for each of several providers of the same job, so that a call that hangs delays
/// others only when all threads are busy. The first free provider gets the next call, so that the
/// connections and keys of a few providers stay in use. Any thread.
class ProviderLanes {
 public:
  using Call = std::function<void(Provider&)>;

  /// The providers, at least one, must outlive this. `name` is the name of the threads, at most 15
  /// characters.
  ProviderLanes(const std::vector<Provider*>& providers, const char* name);
  /// Waits for calls that have begun and drops the others.
  ~ProviderLanes();
  ProviderLanes(const ProviderLanes&) = delete;
  ProviderLanes& operator=(const ProviderLanes&) = delete;

  void give(Call call);

 private:
  struct Lane {
    Provider* provider = nullptr;
    std::optional<Call> call;  // the call that it carries out; none if it is free
    std::condition_variable given;
    std::thread thread;
  };
  void run(Lane& lane);

  std::mutex mutex_;
  std::deque<Call> waiting_;  // guarded by mutex_, as are stopping_ and the lanes' calls
  bool stopping_ = false;
  std::deque<Lane> lanes_;
};

/// A thread that processes items in order, all waiting ones in one call. Any thread.
template <typename T>
class BatchLane {
 public:
  explicit BatchLane(std::function<void(const std::vector<T>&)> act)
      : act_(std::move(act)), thread_([this] { run(); }) {}
  /// Processes all waiting items, then ends the thread.
  ~BatchLane() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  BatchLane(const BatchLane&) = delete;
  BatchLane& operator=(const BatchLane&) = delete;

  void give(T one) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(one));
      ++given_;
    }
    changed_.notify_all();
  }

  /// Waits until all items that were added before are processed, at most for the given time.
  void flush(Duration timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [this, mine = given_] { return done_ >= mine; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) {
        return;
      }
      std::vector<T> batch;
      batch.swap(waiting_);
      lock.unlock();
      act_(batch);
      lock.lock();
      done_ += batch.size();
      changed_.notify_all();
    }
  }

  const std::function<void(const std::vector<T>&)> act_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<T> waiting_;  // guarded by mutex_, as are the next three
  std::uint64_t given_ = 0;
  std::uint64_t done_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mayfly::cloud_hooks
