#include "collectives/mpi/mpi_queue.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "collectives/mpi/poll_backoff.hpp"

namespace mayfly::collectives {
namespace {

// The queue's thread is woken for an operation only when the group was idle before; otherwise it
// looks by itself, soon after there was something to do for it and ever less often while those who
// wait do everything.
constexpr Duration kNapMin = std::chrono::microseconds(100);
constexpr Duration kNapMax = std::chrono::microseconds(1600);
// MPI's own collectives do not return before they are done, so a waiting thread enters them only
// if it has so much time that only a hang can take longer.
constexpr Duration kHangs = seconds(1);
// How long an aborted group waits for an operation that cannot be stopped.
constexpr Duration kStuck = seconds(5);

std::chrono::steady_clock::time_point time_point(Instant instant) {
  return std::chrono::steady_clock::time_point{std::chrono::nanoseconds(instant.ns)};
}

Error aborted_error() {
  return {Errc::kAborted, "the group was aborted"};
}

}  // namespace

MpiQueue::MpiQueue(MpiWorld& world, std::unique_ptr<MpiEngine> engine)
    : world_(world), engine_(std::move(engine)), nap_(kNapMin) {
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "mayfly-comm");
}

MpiQueue::~MpiQueue() {
  ENSURE(!thread_.joinable(), "a queue is closed before it is destroyed");
}

void MpiQueue::start(std::shared_ptr<MpiOperation> operation) {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    operation->finish(*failure_);
    return;
  }
  operations_.push_back(std::move(operation));
  ++started_;
  if (asleep_) {
    work_.notify_one();
  }
}

Result<void> MpiQueue::wait(MpiOperation& operation, Instant deadline) {
  Lock lock(mutex_);
  while (!operation.outcome) {
    if (!driving_ && may_drive_until(deadline)) {
      drive(lock, &operation, deadline);
    } else {
      // Whoever drives now stops when its own operation is done; ours may then still wait.
      finished_.wait_until(lock, time_point(deadline), [&] {
        return operation.outcome.has_value() || (!driving_ && may_drive_until(deadline));
      });
    }
    if (!operation.outcome && monotonic_now() >= deadline) {
      return Error{Errc::kDeadline, "the operation is still running"};
    }
  }
  return *operation.outcome;
}

Instant MpiQueue::finished_at(const MpiOperation& operation) {
  const std::lock_guard lock(mutex_);
  return operation.finished_at;
}

void MpiQueue::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  work_.notify_one();
}

void MpiQueue::close() {
  aborted_.store(true, std::memory_order_release);
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    work_.notify_one();
  }
  thread_.join();
}

bool MpiQueue::may_drive_until(Instant deadline) const {
  return engine_->can_be_stopped() || deadline - monotonic_now() > kHangs;
}

// Called and left with the lock held; not held while MPI is called.
void MpiQueue::drive(Lock& lock, const MpiOperation* until, Instant deadline) {
  driving_ = true;
  lock.unlock();
  while (drive_front(until, deadline)) {
  }
  lock.lock();
  driving_ = false;
  finished_.notify_all();
  const bool is_over = closing_ || aborted_.load(std::memory_order_acquire);
  if (is_over || (asleep_ && !operations_.empty())) {
    work_.notify_one();
  }
}

// One operation, to its end. False: the driver has what it wanted.
bool MpiQueue::drive_front(const MpiOperation* until, Instant deadline) {
  const std::shared_ptr<MpiOperation> operation = front();
  if (operation == nullptr) {
    return false;
  }
  if (run_ == nullptr && !aborted_.load(std::memory_order_acquire)) {
    run_ = engine_->begin(operation->task);
  }
  PollBackoff wait;
  while (!aborted_.load(std::memory_order_acquire)) {
    const Result<MpiRun::Progress> progress = run_->advance();
    if (!progress.ok()) {
      world_.spoil();
      fail_all(progress.error());
      return false;
    }
    if (progress.value() == MpiRun::Progress::kDone) {
      run_.reset();
      finish_front({});
      return operation.get() != until;
    }
    if (progress.value() == MpiRun::Progress::kMoved) {
      wait.moved();
      continue;
    }
    if (until != nullptr && monotonic_now() >= deadline) {
      return false;
    }
    wait.pause();
  }
  fail_all(aborted_error());
  return false;
}

std::shared_ptr<MpiOperation> MpiQueue::front() {
  const std::lock_guard lock(mutex_);
  return operations_.empty() ? nullptr : operations_.front();
}

void MpiQueue::finish_front(Result<void> outcome) {
  const std::lock_guard lock(mutex_);
  operations_.front()->finish(std::move(outcome));
  operations_.pop_front();
  finished_.notify_all();
}

// First lets go of the operation that has begun: whoever learns of the failure may reuse or free
// the memory at once.
void MpiQueue::fail_all(const Error& failure) {
  run_.reset();
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  for (const std::shared_ptr<MpiOperation>& operation : operations_) {
    operation->finish(failure);
  }
  operations_.clear();
  finished_.notify_all();
}

void MpiQueue::run() {
  Lock lock(mutex_);
  while (true) {
    if (driving_) {
      end_if_stuck(lock);
    } else if (!operations_.empty()) {
      drive(lock, nullptr, {});
      nap_ = kNapMin;
      continue;
    } else if (closing_) {
      break;
    }
    sleep(lock);
  }
  if (!failure_) {
    failure_ = aborted_error();
  }
}

void MpiQueue::sleep(Lock& lock) {
  if (closing_ || aborted_.load(std::memory_order_acquire)) {
    // Whoever drives sees it soon; a group that was aborted is about to be closed.
    work_.wait_for(lock, kNapMax);
    return;
  }
  const std::uint64_t started = started_;
  if (nap_ <= kNapMax) {
    work_.wait_for(lock, nap_);
    nap_ = started != started_ ? std::min(2 * nap_, kNapMax) : 2 * nap_;
    if (!driving_ && operations_.empty()) {
      engine_->poke();
    }
    return;
  }
  asleep_ = true;
  work_.wait(lock);
  asleep_ = false;
  nap_ = kNapMin;
}

// An operation of MPI's own has been entered and the group aborted since. It ends when all members
// come to it; if they do not, nothing can free this process.
void MpiQueue::end_if_stuck(Lock& lock) {
  if (engine_->can_be_stopped() || !aborted_.load(std::memory_order_acquire)) {
    return;
  }
  const bool ended = work_.wait_for(lock, kStuck, [this] { return !driving_; });
  if (!ended) {
    leave_process(
        "an MPI operation that lost a member cannot be stopped, so this process ends; "
        "operations under mpirun --enable-recovery can be");
  }
}

}  // namespace mayfly::collectives
