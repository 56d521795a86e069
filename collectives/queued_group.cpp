#include "collectives/queued_group.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {
namespace {

// After an operation of an engine that settles, the queue's thread does not sleep at once but takes
// kIdleNaps naps and checks for work after each: the first is short, and each is twice as long as
// the one before. Waking the thread for each operation would cost more than the operation, which
// the waiting thread usually carries out itself.
constexpr Duration kNapMin = std::chrono::microseconds(100);
constexpr Duration kNapMax = std::chrono::microseconds(1600);
constexpr int kIdleNaps = 5;

/// An operation that was started. The queue and its Work share it; either may be destroyed first.
struct Started {
  Operation operation;
  std::int32_t scratch = 0;            // the vector of a barrier
  std::optional<Result<void>> result;  // guarded by the queue
  Instant finished_at;                 // guarded by the queue
};

std::chrono::steady_clock::time_point time_point_of(Instant instant) {
  return std::chrono::steady_clock::time_point{std::chrono::nanoseconds(instant.ns)};
}

class OperationQueue {
 public:
  explicit OperationQueue(std::unique_ptr<GroupEngine> engine) : engine_(std::move(engine)) {
    if (engine_) {
      settles_ = engine_->settles();
      thread_ = std::thread([this] { serve(); });
      ::pthread_setname_np(thread_.native_handle(), "mayfly-comm");
    }
  }
  ~OperationQueue() { close(); }
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  /// Appends; one thread at a time.
  void start(std::shared_ptr<Started> started) {
    const std::lock_guard lock(mutex_);
    append(std::move(started));
    call_thread();
  }

  /// start() and wait() in one call: does not wake the queue's thread if this thread can run
  /// everything. After kDeadline the queue is aborted.
  Result<void> run(const std::shared_ptr<Started>& started, Instant deadline) {
    {
      const std::lock_guard lock(mutex_);
      append(started);
      if (engine_ && !engine_->returns_by(deadline)) {
        call_thread();
      }
    }
    Result<void> done = wait(*started, deadline);
    if (!done.ok() && done.error().code == Errc::kDeadline) {
      abort();
      (void)wait(*started, std::nullopt);
    }
    return done;
  }

  /// Any thread, never blocks.
  void abort() noexcept {
    aborted_.store(true, std::memory_order_release);
    if (engine_) {
      engine_->abort();
    }
  }

  /// Aborts, fails all operations that are left, ends the thread and destroys the engine.
  /// Afterwards only wait() may be called.
  void close() {
    abort();
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      call_.notify_one();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !running_; });
    run_until(lock, nullptr, std::nullopt);
    engine_.reset();
  }

  /// Waits until the operation is complete, or for kDeadline. Any thread.
  Result<void> wait(const Started& started, std::optional<Instant> deadline) {
    std::unique_lock lock(mutex_);
    while (!started.result.has_value()) {
      if (deadline && monotonic_now() >= *deadline) {
        return Error{Errc::kDeadline, "the operation is still running"};
      }
      if (!running_ && engine_->returns_by(deadline)) {
        run_until(lock, &started, deadline);
        continue;
      }
      call_thread();  // run() has not, if the deadline was far enough away for this thread then
      if (deadline) {
        changed_.wait_until(lock, time_point_of(*deadline));
      } else {
        changed_.wait(lock);
      }
    }
    return *started.result;
  }

  /// As Group::time_waited(). To be called before close().
  std::optional<Duration> time_waited() const {
    return engine_ ? engine_->time_waited() : std::nullopt;
  }

  /// As Work::finished_at().
  Instant finished_at(const Started& started) const {
    const std::lock_guard lock(mutex_);
    return started.finished_at;
  }

 private:
  void append(std::shared_ptr<Started> started) {
    if (engine_) {
      queue_.push_back(std::move(started));
      return;
    }
    started->finished_at = monotonic_now();
    started->result = aborted_.load(std::memory_order_acquire)
                          ? Result<void>(Error{Errc::kAborted, "the group was aborted"})
                          : Result<void>();
  }

  void call_thread() {
    if (!running_ && is_asleep_) {
      call_.notify_one();
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    Duration nap = kNapMin;
    while (!closing_) {
      if (!running_ && !queue_.empty()) {
        run_until(lock, nullptr, std::nullopt);
        nap = kNapMin;
      } else if (naps_left_ > 0) {
        const std::uint64_t begun = begun_so_far_;
        --naps_left_;
        call_.wait_for(lock, nap);
        nap = std::min(2 * nap, kNapMax);
        // Operations let the engine settle, too, so the queue must be idle here: they must not
        // wait.
        if (begun_so_far_ == begun && !running_ && queue_.empty() && !closing_) {
          engine_->settle();
        }
      } else {
        is_asleep_ = true;
        call_.wait(lock);
        is_asleep_ = false;
        nap = kNapMin;
      }
    }
  }

  // Works on the queue until `wanted` is complete (null: until the queue is empty) or `until` has
  // passed.
  void run_until(std::unique_lock<std::mutex>& lock, const Started* wanted,
                 std::optional<Instant> until) {
    running_ = true;
    while (!queue_.empty() && (wanted == nullptr || !wanted->result.has_value())) {
      if (!run_first(lock, until)) {
        break;
      }
    }
    running_ = false;
    naps_left_ = settles_ ? kIdleNaps : 0;
    if (is_asleep_ && (!queue_.empty() || settles_)) {
      call_.notify_one();
    }
    changed_.notify_all();
  }

  // False: `until` has passed before the first operation was complete.
  bool run_first(std::unique_lock<std::mutex>& lock, std::optional<Instant> until) {
    const std::shared_ptr<Started> first = queue_.front();
    if (!failure_) {
      const bool begin = !std::exchange(begun_, true);
      begun_so_far_ += begin ? 1 : 0;
      lock.unlock();
      if (begin) {
        engine_->begin(first->operation);
      }
      const Result<bool> done = engine_->advance(until);
      lock.lock();
      if (!done.ok()) {
        failure_ = done.error();
      } else if (!done.value()) {
        return false;
      }
      begun_ = false;
    }
    first->finished_at = monotonic_now();
    first->result = failure_ ? Result<void>(*failure_) : Result<void>();
    queue_.pop_front();
    changed_.notify_all();
    return true;
  }

  // Null in a group of one. Only the thread that sets running_ uses it, except for functions for
  // any thread.
  std::unique_ptr<GroupEngine> engine_;
  bool settles_ = false;
  std::atomic<bool> aborted_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for threads that wait for operations
  std::condition_variable call_;     // for the queue's thread
  // Guarded by mutex_:
  std::deque<std::shared_ptr<Started>> queue_;
  std::optional<Error> failure_;  // of the first failed operation; all later ones fail with it, too
  int naps_left_ = 0;             // naps that the queue's thread takes before it sleeps
  std::uint64_t begun_so_far_ = 0;  // number of operations
  bool begun_ = false;              // the engine works on the queue's first operation
  bool running_ = false;            // a thread uses the engine
  bool is_asleep_ = false;          // the queue's thread sleeps until it is called
  bool closing_ = false;
  std::thread thread_;  // the last member, because the thread uses the others
};

class QueuedWork final : public Work {
 public:
  QueuedWork(std::shared_ptr<OperationQueue> queue, std::shared_ptr<Started> started)
      : queue_(std::move(queue)), started_(std::move(started)) {}
  ~QueuedWork() override { (void)queue_->wait(*started_, std::nullopt); }

  Result<void> wait(Instant deadline) override { return queue_->wait(*started_, deadline); }
  Instant finished_at() const override { return queue_->finished_at(*started_); }

 private:
  const std::shared_ptr<OperationQueue> queue_;  // shared with the group
  const std::shared_ptr<Started> started_;
};

class QueuedGroup final : public Group {
 public:
  QueuedGroup(ViewId view, Rank rank, std::uint32_t size, std::unique_ptr<GroupEngine> engine)
      : view_(view),
        rank_(rank),
        size_(size),
        queue_(std::make_shared<OperationQueue>(std::move(engine))) {}
  ~QueuedGroup() override { queue_->close(); }

  ViewId view() const override { return view_; }
  Rank rank() const override { return rank_; }
  std::uint32_t size() const override { return size_; }

  std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                   ReduceOp op) override {
    return start(new_all_reduce(data, count, type, op));
  }
  Result<void> all_reduce_blocking(void* data, std::size_t count, DataType type, ReduceOp op,
                                   Instant deadline) override {
    return queue_->run(new_all_reduce(data, count, type, op), deadline);
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) override {
    ENSURE(value(root) < size_, "the root of a broadcast is a member of the group");
    return start(new_started({.kind = Operation::Kind::kBroadcast, .data = data, .root = root}));
  }
  std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) override {
    ENSURE(all.size() == mine.size() * size_, "all_gather needs room for every member's part");
    if (!mine.empty()) {
      std::memmove(all.data() + mine.size() * value(rank_), mine.data(), mine.size());
    }
    return start(new_started({.kind = Operation::Kind::kAllGather, .data = all}));
  }
  std::unique_ptr<Work> barrier() override {
    auto started = std::make_shared<Started>();
    started->operation = barrier_operation(started->scratch, ++sequence_);
    return start(std::move(started));
  }

  std::optional<Duration> time_waited() const override { return queue_->time_waited(); }

  void abort() noexcept override { queue_->abort(); }

 private:
  std::shared_ptr<Started> new_started(const Operation& operation) {
    auto started = std::make_shared<Started>();
    started->operation = numbered(operation, ++sequence_);
    return started;
  }
  std::shared_ptr<Started> new_all_reduce(void* data, std::size_t count, DataType type,
                                          ReduceOp op) {
    if (size_ == 1) {
      reduce_alone(data, count, type, op);
    }
    return new_started({.kind = Operation::Kind::kAllReduce,
                        .data = {static_cast<std::byte*>(data), count * size_of(type)},
                        .type = type,
                        .op = op});
  }
  std::unique_ptr<Work> start(std::shared_ptr<Started> started) {
    auto work = std::make_unique<QueuedWork>(queue_, started);
    queue_->start(std::move(started));
    return work;
  }

  const ViewId view_;
  const Rank rank_;
  const std::uint32_t size_;
  const std::shared_ptr<OperationQueue> queue_;  // shared with every Work
  std::uint64_t sequence_ = 0;                   // used by the thread that starts operations
};

}  // namespace

std::unique_ptr<Group> make_queued_group(ViewId view, Rank rank, std::uint32_t size,
                                         std::unique_ptr<GroupEngine> engine) {
  ENSURE((size == 1) == (engine == nullptr), "exactly a group of one has no engine");
  return std::make_unique<QueuedGroup>(view, rank, size, std::move(engine));
}

Result<std::int32_t> run_first_barrier(GroupEngine& engine, std::int32_t vote, Instant deadline) {
  std::int32_t votes = vote;
  const Operation barrier = barrier_operation(votes, 0);
  engine.begin(barrier);
  const Result<bool> met = engine.advance(deadline);
  if (!met.ok()) {
    return met.error();
  }
  if (!met.value()) {
    return Error{Errc::kDeadline, "the members did not meet in time"};
  }
  return votes;
}

Result<void> check_spec(const GroupSpec& spec) {
  if (value(spec.rank) >= spec.peers.size()) {
    return Error{Errc::kInvalidInput, "the group's own rank is not among its peers"};
  }
  return {};
}

}  // namespace mayfly::collectives
