#include "collectives/operation_queue.hpp"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "base/check.hpp"

namespace mayfly::collectives {
namespace {

class QueuedWork final : public Work {
 public:
  QueuedWork(std::shared_ptr<OperationQueue> queue, std::shared_ptr<Operation> operation)
      : queue_(std::move(queue)), operation_(std::move(operation)) {}
  ~QueuedWork() override { (void)queue_->wait(*operation_, std::nullopt); }

  Result<void> wait(Instant deadline) override { return queue_->wait(*operation_, deadline); }
  Instant finished_at() const override { return queue_->finished_at(*operation_); }

 private:
  const std::shared_ptr<OperationQueue> queue_;
  const std::shared_ptr<Operation> operation_;
};

std::chrono::steady_clock::time_point time_point_of(Instant instant) {
  return std::chrono::steady_clock::time_point{std::chrono::nanoseconds(instant.ns)};
}

}  // namespace

OperationQueue::OperationQueue(std::unique_ptr<RingLink> link) : link_(std::move(link)) {
  if (link_) {
    thread_ = std::thread([this] { serve(); });
    ::pthread_setname_np(thread_.native_handle(), "mayfly-comm");
  }
}

OperationQueue::~OperationQueue() {
  close();
}

std::unique_ptr<Work> OperationQueue::start(std::shared_ptr<Operation> operation) {
  auto work = std::make_unique<QueuedWork>(shared_from_this(), operation);
  const std::lock_guard lock(mutex_);
  append(std::move(operation));
  if (!running_) {
    call_.notify_one();
  }
  return work;
}

Result<void> OperationQueue::run(const std::shared_ptr<Operation>& operation, Instant deadline) {
  {
    const std::lock_guard lock(mutex_);
    append(operation);
    if (link_ && !link_->can_pause()) {
      call_.notify_one();
    }
  }
  Result<void> done = wait(*operation, deadline);
  if (!done.ok() && done.error().code == Errc::kDeadline) {
    abort();
    (void)wait(*operation, std::nullopt);
  }
  return done;
}

void OperationQueue::append(std::shared_ptr<Operation> operation) {
  if (link_) {
    queue_.push_back(std::move(operation));
    return;
  }
  operation->finished_at = monotonic_now();
  operation->result = aborted_.load(std::memory_order_acquire)
                          ? Result<void>(Error{Errc::kAborted, "the group was aborted"})
                          : Result<void>();
}

void OperationQueue::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  if (link_) {
    link_->abort();
  }
}

void OperationQueue::close() {
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
  link_.reset();
}

Result<void> OperationQueue::wait(const Operation& operation, std::optional<Instant> deadline) {
  std::unique_lock lock(mutex_);
  while (!operation.result.has_value()) {
    if (deadline && monotonic_now() >= *deadline) {
      return Error{Errc::kDeadline, "the operation is still running"};
    }
    if (!running_ && link_->can_pause()) {
      run_until(lock, &operation, deadline);
    } else if (deadline) {
      changed_.wait_until(lock, time_point_of(*deadline));
    } else {
      changed_.wait(lock);
    }
  }
  return *operation.result;
}

Instant OperationQueue::finished_at(const Operation& operation) const {
  const std::lock_guard lock(mutex_);
  return operation.finished_at;
}

void OperationQueue::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    call_.wait(lock, [&] { return closing_ || (!running_ && !queue_.empty()); });
    if (closing_) {
      return;
    }
    run_until(lock, nullptr, std::nullopt);
  }
}

// Works on the queue until `wanted` is complete (null: until the queue is empty) or `until`.
void OperationQueue::run_until(std::unique_lock<std::mutex>& lock, const Operation* wanted,
                               std::optional<Instant> until) {
  running_ = true;
  while (!queue_.empty() && (wanted == nullptr || !wanted->result.has_value())) {
    if (!run_first(lock, until)) {
      break;
    }
  }
  running_ = false;
  if (!queue_.empty()) {
    call_.notify_one();
  }
  changed_.notify_all();
}

// False: the time was up before the first operation was complete.
bool OperationQueue::run_first(std::unique_lock<std::mutex>& lock, std::optional<Instant> until) {
  const std::shared_ptr<Operation> operation = queue_.front();
  if (!failure_) {
    const bool begin = !std::exchange(begun_, true);
    lock.unlock();
    if (begin) {
      link_->begin(operation->task);
    }
    const Result<bool> done = link_->advance(until);
    lock.lock();
    if (!done.ok()) {
      failure_ = done.error();
    } else if (!done.value()) {
      return false;
    }
    begun_ = false;
  }
  operation->finished_at = monotonic_now();
  operation->result = failure_ ? Result<void>(*failure_) : Result<void>();
  queue_.pop_front();
  changed_.notify_all();
  return true;
}

}  // namespace mayfly::collectives
