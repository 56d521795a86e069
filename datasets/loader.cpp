#include "datasets/loader.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "base/check.hpp"
#include "base/thread_priority.hpp"
#include "datasets/preparer.hpp"

namespace mayfly::datasets {
namespace {

// Delays a loader as LoaderPace specifies. Any thread.
class Drag {
 public:
  Drag(const Dataset& train, LoaderPaceOf pace) : train_(train), pace_(std::move(pace)) {}

  /// Bytes of the batch's images that were read from storage.
  [[nodiscard]] std::uint64_t stored_bytes(const PreparedBatch& batch) const {
    std::uint64_t bytes = 0;
    for (const std::uint32_t sample : batch.samples) {
      bytes += train_.stored_bytes(sample);
    }
    return bytes - std::min(bytes, batch.bytes_from_store);
  }

  /// To be called when a batch is ready; returns at the time when it would be ready with the
  /// delays.
  void hold_back(PreparedBatch& batch) {
    if (!pace_) {
      return;
    }
    const LoaderPace pace = pace_(batch.step);
    const Instant begun = monotonic_now();
    const Instant fetched = come_from_storage(batch, pace.storage_rate, begun) + pace.fetch;
    if (fetched > begun) {
      wait_until(fetched);
      batch.fetched += monotonic_now() - begun;
    }
    if (pace.prep.count() > 0) {
      burn(pace.prep);
    }
  }

  /// Ends all delays.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    ending_.notify_all();
  }

 private:
  // A token bucket: the storage delivers bytes one batch after the other, and earlier ones by
  // `free_at_`.
  Instant come_from_storage(const PreparedBatch& batch, double rate, Instant now) {
    if (rate <= 0) {
      return now;
    }
    const auto bytes = static_cast<double>(stored_bytes(batch));
    const std::lock_guard lock(mutex_);
    free_at_ = std::max(free_at_, now) + Duration(static_cast<std::int64_t>(1e9 * bytes / rate));
    return free_at_;
  }

  void wait_until(Instant until) {
    std::unique_lock lock(mutex_);
    ending_.wait_until(lock,
                       std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until.ns)),
                       [this] { return ended_; });
  }

  void burn(Duration processor_time) {
    const Instant until = thread_cpu_now() + processor_time;
    while (thread_cpu_now() < until) {
      const std::lock_guard lock(mutex_);
      if (ended_) {
        return;
      }
    }
  }

  const Dataset& train_;
  const LoaderPaceOf pace_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable ending_;
  bool ended_ = false;
  Instant free_at_;
};

enum class EntryState { kWaiting, kPreparing, kReady };

// One requested microbatch. Entries stand in the order of the requests.
struct Entry {
  std::uint64_t step = 0;
  std::uint32_t microbatch = 0;
  EntryState state = EntryState::kWaiting;
  bool cancelled = false;    // kPreparing only: discard the result
  std::uint32_t takers = 0;  // calls of take() that wait for it
  std::unique_ptr<PreparedBatch> batch;
};

class ThreadedLoader final : public Loader {
 public:
  ThreadedLoader(const DatasetPair& pair, const LoaderOptions& options)
      : preparer_(pair, options),
        prefetch_max_(std::max(options.prefetch_max, 1U)),
        yield_cores_(options.yield_cores),
        taker_share_(
            std::min(1.0, static_cast<double>(options.takers) / std::max(options.threads, 1U))),
        drag_(*pair.train, options.reuse_images ? LoaderPaceOf() : options.pace) {
    // Beyond these sizes the vectors grow; below them a step allocates nothing.
    entries_.reserve(1024);
    pool_.reserve(1024);
    for (std::uint32_t i = 0; i < options.threads; ++i) {
      threads_.emplace_back([this, i] { prepare_until_stopped(i); });
    }
  }

  ~ThreadedLoader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    drag_.end();
    work_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  void request(std::uint64_t step, std::span<const std::uint32_t> microbatches) override {
    if (threads_.empty()) {
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      for (const std::uint32_t microbatch : microbatches) {
        if (Entry* known = find(step, microbatch)) {
          known->cancelled = false;
        } else {
          entries_.push_back({step, microbatch, EntryState::kWaiting, false, 0, nullptr});
        }
      }
    }
    work_.notify_all();
  }

  std::unique_ptr<PreparedBatch> take(std::uint64_t step, std::uint32_t microbatch) override {
    const Instant start = monotonic_now();
    std::unique_ptr<PreparedBatch> batch = take_prepared(step, microbatch);
    double share = taker_share_;
    if (batch == nullptr) {
      batch = fresh_batch();
      fill(step, microbatch, *batch);
      share = 1;
    }
    count_wait(monotonic_now() - start, share * static_cast<double>(batch->fetched.count()));
    return batch;
  }

  std::unique_ptr<PreparedBatch> take_ahead() override {
    std::unique_lock lock(mutex_);
    const auto first = std::ranges::find(entries_, false, &Entry::cancelled);
    if (first == entries_.end() || first->state != EntryState::kReady) {
      return nullptr;
    }
    std::unique_ptr<PreparedBatch> batch = std::move(first->batch);
    entries_.erase(first);
    lock.unlock();
    work_.notify_one();
    return batch;
  }

  void recycle(std::unique_ptr<PreparedBatch> batch) override {
    if (batch != nullptr) {
      const std::lock_guard lock(mutex_);
      pool_.push_back(std::move(batch));
    }
  }

  void cancel_requests() override {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      // An entry that a caller of take() waits for is not cancelled.
      entry.cancelled = entry.takers == 0;
      if (entry.cancelled && entry.state == EntryState::kReady) {
        pool_.push_back(std::move(entry.batch));
      }
    }
    std::erase_if(entries_, [](const Entry& entry) {
      return entry.cancelled && entry.state != EntryState::kPreparing;
    });
  }

  // Threads that fill a batch lock the mutex after that, so they see the change.
  void leave_images_out() override {
    const std::lock_guard lock(mutex_);
    ENSURE(entries_.empty(), "before the first request");
    preparer_.leave_images_out();
  }

  LoaderWait time_waited() const override {
    return {Duration(fetch_wait_ns_.load(std::memory_order_relaxed)),
            Duration(prep_wait_ns_.load(std::memory_order_relaxed))};
  }

  FeedSettings settings() const override {
    const LoaderOptions& options = preparer_.options();
    return {options.threads, options.takers, options.prefetch_max, options.yield_cores};
  }

  LoaderWork work() const override {
    const std::lock_guard lock(mutex_);
    return work_done_;
  }

 private:
  void fill(std::uint64_t step, std::uint32_t microbatch, PreparedBatch& batch) {
    const Instant cpu_before = thread_cpu_now();
    preparer_.fill(step, microbatch, batch);
    drag_.hold_back(batch);
    if (!preparer_.options().reuse_images && !batch.failure) {
      const Duration prep = thread_cpu_now() - cpu_before;
      const std::uint64_t bytes = drag_.stored_bytes(batch);
      const std::lock_guard lock(mutex_);
      work_done_.microbatches += 1;
      work_done_.bytes += bytes;
      work_done_.fetch += batch.fetched;
      work_done_.prep += prep;
    }
  }

  // Without the fetch the batch would have been ready earlier, by the time of the fetch divided by
  // the number of threads that fetch for each caller at the same time.
  void count_wait(Duration waited, double fetched_ns) {
    const std::int64_t fetch = std::min(waited.count(), static_cast<std::int64_t>(fetched_ns));
    fetch_wait_ns_.fetch_add(fetch, std::memory_order_relaxed);
    prep_wait_ns_.fetch_add(waited.count() - fetch, std::memory_order_relaxed);
  }

  Entry* find(std::uint64_t step, std::uint32_t microbatch) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.step == step && entry.microbatch == microbatch;
    });
    return found == entries_.end() ? nullptr : &*found;
  }

  void erase(Entry* entry) { entries_.erase(entries_.begin() + (entry - entries_.data())); }

  // The batch if a thread has prepared it or is preparing it; null if the caller must prepare it.
  std::unique_ptr<PreparedBatch> take_prepared(std::uint64_t step, std::uint32_t microbatch) {
    std::unique_lock lock(mutex_);
    for (;;) {
      Entry* entry = find(step, microbatch);
      if (entry == nullptr) {
        return nullptr;
      }
      if (entry->state == EntryState::kPreparing) {
        entry->takers += 1;
        ready_.wait(lock);
        if (Entry* again = find(step, microbatch); again != nullptr && again->takers > 0) {
          again->takers -= 1;
        }
        continue;
      }
      std::unique_ptr<PreparedBatch> batch = std::move(entry->batch);
      erase(entry);
      lock.unlock();
      work_.notify_one();  // there is room for one more now
      return batch;
    }
  }

  std::unique_ptr<PreparedBatch> fresh_batch() {
    const std::lock_guard lock(mutex_);
    return fresh_batch_locked();
  }

  std::unique_ptr<PreparedBatch> fresh_batch_locked() {
    if (pool_.empty()) {
      return std::make_unique<PreparedBatch>();
    }
    std::unique_ptr<PreparedBatch> batch = std::move(pool_.back());
    pool_.pop_back();
    return batch;
  }

  // The first entry that no thread has begun, if the bound allows another one.
  Entry* next_entry() {
    std::uint32_t begun = 0;
    for (Entry& entry : entries_) {
      if (begun >= prefetch_max_) {
        return nullptr;
      }
      if (entry.state == EntryState::kWaiting) {
        return &entry;
      }
      begun += 1;
    }
    return nullptr;
  }

  void prepare_until_stopped(std::uint32_t number) {
    char name[16];
    std::snprintf(name, sizeof name, "loader-%u", number);
    ::pthread_setname_np(::pthread_self(), name);
    if (yield_cores_) {
      run_with_low_priority();
    }
    std::unique_lock lock(mutex_);
    for (;;) {
      Entry* entry = nullptr;
      work_.wait(lock, [&] { return stopping_ || (entry = next_entry()) != nullptr; });
      if (stopping_) {
        return;
      }
      entry->state = EntryState::kPreparing;
      const std::uint64_t step = entry->step;
      const std::uint32_t microbatch = entry->microbatch;
      std::unique_ptr<PreparedBatch> batch = fresh_batch_locked();
      lock.unlock();
      fill(step, microbatch, *batch);
      lock.lock();
      finish(step, microbatch, std::move(batch));
    }
  }

  void finish(std::uint64_t step, std::uint32_t microbatch, std::unique_ptr<PreparedBatch> batch) {
    Entry* entry = find(step, microbatch);
    ENSURE(entry != nullptr && entry->state == EntryState::kPreparing,
           "an entry stays until the thread that prepares it is done");
    if (entry->cancelled && entry->takers == 0) {
      pool_.push_back(std::move(batch));
      erase(entry);
      return;
    }
    entry->state = EntryState::kReady;
    entry->cancelled = false;
    entry->batch = std::move(batch);
    ready_.notify_all();
  }

  Preparer preparer_;  // changed before the first request only
  const std::uint32_t prefetch_max_;
  const bool yield_cores_;
  const double taker_share_;  // of the time of a fetch, which a caller of take() waits for
  Drag drag_;
  std::atomic<std::int64_t> fetch_wait_ns_{0};
  std::atomic<std::int64_t> prep_wait_ns_{0};

  mutable std::mutex mutex_;  // guards everything below except threads_
  LoaderWork work_done_;
  std::condition_variable work_;
  std::condition_variable ready_;
  bool stopping_ = false;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<PreparedBatch>> pool_;

  std::vector<std::thread> threads_;  // set once, by the constructor
};

}  // namespace

std::unique_ptr<Loader> make_loader(const DatasetPair& pair, const LoaderOptions& options) {
  return std::make_unique<ThreadedLoader>(pair, options);
}

}  // namespace mayfly::datasets
