#include "collectives/ring_group.hpp"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "collectives/ring_task.hpp"

namespace mayfly::collectives {
namespace {

// One started operation. Owned by the group's queue and by its Work: either may be gone first.
struct Operation {
  RingTask task;
  std::int32_t scratch = 0;  // what a barrier sums

  std::mutex mutex;
  std::condition_variable finished;
  std::optional<Result<void>> result;  // guarded by mutex
  Instant finished_at;                 // guarded by mutex

  void finish(Result<void> outcome) {
    const Instant now = monotonic_now();
    const std::lock_guard lock(mutex);
    finished_at = now;
    result = std::move(outcome);
    finished.notify_all();
  }
};

class RingWork final : public Work {
 public:
  explicit RingWork(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  ~RingWork() override {
    std::unique_lock lock(operation_->mutex);
    operation_->finished.wait(lock, [&] { return operation_->result.has_value(); });
  }

  Result<void> wait(Instant deadline) override {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point until{std::chrono::nanoseconds(deadline.ns)};
    std::unique_lock lock(operation_->mutex);
    if (!operation_->finished.wait_until(lock, until,
                                         [&] { return operation_->result.has_value(); })) {
      return Error{Errc::kDeadline, "the operation is still running"};
    }
    return *operation_->result;
  }

  Instant finished_at() const override {
    const std::lock_guard lock(operation_->mutex);
    return operation_->finished_at;
  }

 private:
  std::shared_ptr<Operation> operation_;
};

class RingGroup final : public Group {
 public:
  RingGroup(ViewId view, RingPlace place, std::unique_ptr<RingLink> link)
      : view_(view), place_(place), link_(std::move(link)) {
    if (link_) {
      thread_ = std::thread([this] { run(); });
      ::pthread_setname_np(thread_.native_handle(), "mayfly-comm");
    }
  }
  ~RingGroup() override {
    abort();
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  ViewId view() const override { return view_; }
  Rank rank() const override { return place_.rank; }
  std::uint32_t size() const override { return place_.size; }

  std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                   ReduceOp op) override {
    const std::span bytes(static_cast<std::byte*>(data), count * size_of(type));
    auto operation = std::make_shared<Operation>();
    operation->task = all_reduce_task(place_, ++sequence_, bytes, type, op);
    return start(std::move(operation));
  }
  std::unique_ptr<Work> reduce_scatter(void* data, std::size_t count, DataType type,
                                       ReduceOp op) override {
    const std::span bytes(static_cast<std::byte*>(data), count * size_of(type));
    auto operation = std::make_shared<Operation>();
    operation->task = reduce_scatter_task(place_, ++sequence_, bytes, type, op);
    return start(std::move(operation));
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) override {
    ENSURE(value(root) < place_.size, "the root of a broadcast is a member of the group");
    auto operation = std::make_shared<Operation>();
    operation->task = broadcast_task(place_, ++sequence_, data, root);
    return start(std::move(operation));
  }
  std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) override {
    ENSURE(all.size() == mine.size() * place_.size,
           "all_gather needs room for every member's part");
    if (!mine.empty()) {
      std::memmove(all.data() + mine.size() * value(place_.rank), mine.data(), mine.size());
    }
    auto operation = std::make_shared<Operation>();
    operation->task = all_gather_task(place_, ++sequence_, all);
    return start(std::move(operation));
  }
  std::unique_ptr<Work> barrier() override {
    auto operation = std::make_shared<Operation>();
    operation->task = barrier_task(place_, ++sequence_, operation->scratch);
    return start(std::move(operation));
  }

  void abort() noexcept override {
    aborted_.store(true, std::memory_order_release);
    if (link_) {
      link_->abort();
    }
  }

 private:
  std::unique_ptr<Work> start(std::shared_ptr<Operation> operation) {
    auto work = std::make_unique<RingWork>(operation);
    if (!link_) {  // alone: there is nothing to exchange
      operation->finish(aborted_.load(std::memory_order_acquire)
                            ? Result<void>(Error{Errc::kAborted, "the group was aborted"})
                            : Result<void>());
      return work;
    }
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
    changed_.notify_all();
    return work;
  }

  // The communication thread. The first failure is the outcome of everything after it.
  void run() {
    std::optional<Error> failure;
    while (std::shared_ptr<Operation> operation = next_operation()) {
      if (!failure) {
        Result<void> outcome = link_->run(operation->task, std::nullopt);
        if (!outcome.ok()) {
          failure = outcome.error();
        }
      }
      operation->finish(failure ? Result<void>(*failure) : Result<void>());
    }
  }

  // Null when the group is being destroyed and the queue is empty.
  std::shared_ptr<Operation> next_operation() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) {
      return nullptr;
    }
    std::shared_ptr<Operation> first = std::move(queue_.front());
    queue_.pop_front();
    return first;
  }

  const ViewId view_;
  const RingPlace place_;
  const std::unique_ptr<RingLink> link_;  // null in a group of one
  std::uint64_t sequence_ = 0;            // of the thread that starts operations
  std::atomic<bool> aborted_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> queue_;  // guarded by mutex_
  bool closing_ = false;                          // guarded by mutex_
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Group> make_ring_group(ViewId view, Rank rank, std::uint32_t size,
                                       std::unique_ptr<RingLink> link) {
  ENSURE((size == 1) == (link == nullptr), "a group of several members needs a link, one does not");
  return std::make_unique<RingGroup>(view, RingPlace{size, rank}, std::move(link));
}

Result<void> run_first_barrier(RingLink& link, std::uint32_t size, Rank rank, Instant deadline) {
  std::int32_t scratch = 0;
  return link.run(barrier_task({size, rank}, 0, scratch), deadline);
}

RingNeighbours neighbours_of(const std::vector<Peer>& peers, Rank rank) {
  const std::size_t size = peers.size();
  return {.previous = peers[(value(rank) + size - 1) % size].member,
          .next = peers[(value(rank) + 1) % size].member};
}

Result<void> check_spec(const GroupSpec& spec) {
  if (value(spec.rank) >= spec.peers.size()) {
    return Error{Errc::kInvalidInput, "the group's own rank is not among its peers"};
  }
  return {};
}

}  // namespace mayfly::collectives
