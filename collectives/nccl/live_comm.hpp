#pragma once

// Drives one communicator: makes the calls that CommLifecycle asks for and passes results to the
// operations. Used by one thread at a time; only its CommSignal is for other threads.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "collectives/nccl/comm_lifecycle.hpp"
#include "collectives/nccl/nccl_api.hpp"

namespace mayfly::collectives {

/// Signals to the thread that drives a communicator: to abort, or to check for new work. Any
/// thread.
class CommSignal {
 public:
  /// An abort cannot be withdrawn.
  void abort() noexcept {
    aborted_.store(true, std::memory_order_release);
    notify();
  }
  [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// Ends a sleep, or the next one if no thread sleeps.
  void notify() noexcept {
    const std::lock_guard lock(mutex_);
    notified_ = true;
    changed_.notify_all();
  }
  /// Sleeps until notify() is called, or for `at_most`. Zero: only yields to other threads.
  void sleep(Duration at_most);
  /// Sleeps until notify() is called.
  void sleep();

 private:
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool notified_ = false;  // guarded by mutex_
};

/// One started operation of an NCCL group. Owned by the communicator that runs it and by its Work;
/// either may be destroyed first.
class DeviceOperation {
 public:
  /// `gates`: recorded events that the operation waits for on the device.
  DeviceOperation(std::shared_ptr<NcclRuntime> runtime, const DeviceTask& what,
                  std::vector<LentEvent> wait_for)
      : runtime_(std::move(runtime)), task(what), gates(std::move(wait_for)), done(*runtime_) {}

 private:
  std::shared_ptr<NcclRuntime> runtime_;  // outlives the events below

 public:
  const DeviceTask task;
  const std::vector<LentEvent> gates;
  const LentEvent done;  ///< recorded once on the stream; it happens when the operation is complete

  /// Called once by the communication thread: the operation is over and its buffers are free.
  void finish(Result<void> outcome);

  /// Blocks until the operation is over; kDeadline otherwise.
  Result<void> wait_finished(Instant deadline);
  /// Blocks until the operation is over.
  void wait_finished();
  /// When finish() was called; zero before.
  [[nodiscard]] Instant finished_at();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<void>> result_;  // guarded by mutex_
  Instant finished_at_;                 // guarded by mutex_
};

/// The communicator to form, and this member's place in it.
struct CommPlace {
  NcclUniqueId id{};
  std::vector<MemberId> members;  ///< by rank
  std::uint32_t rank = 0;
};

class LiveComm {
 public:
  /// The constructor makes no call of NCCL; connect() makes the first one.
  LiveComm(std::shared_ptr<NcclRuntime> runtime, CommPlace place);
  /// Aborts the communicator unless it is over.
  ~LiveComm();
  LiveComm(const LiveComm&) = delete;
  LiveComm& operator=(const LiveComm&) = delete;

  /// Blocks until the communicator is formed. Runs nothing on the device, where it could run
  /// between the operations of another communicator. kAborted (by the signal), kDeadline,
  /// kPeerLost, kIo, kInvalidInput; then the communicator is over.
  [[nodiscard]] Result<void> connect(Instant deadline);
  /// After connect(): runs a first barrier, which also allocates the memory that operations need on
  /// the device. Fails as connect() does.
  [[nodiscard]] Result<void> meet(Instant deadline);

  /// Queues an operation, to be started by a later turn().
  void submit(std::shared_ptr<DeviceOperation> operation);
  /// No more operations will be submitted: finalizes the communicator if none is unfinished, and
  /// aborts it otherwise.
  void close(Instant deadline);
  /// Makes at most one call of NCCL. Returns how long to sleep before the next turn: zero = not at
  /// all, nothing = until the signal is notified.
  [[nodiscard]] std::optional<Duration> turn();
  [[nodiscard]] bool over() const { return lifecycle_->over(); }

  /// Any thread. Shared by the owner of the communicator and the threads that may abort it.
  [[nodiscard]] const std::shared_ptr<CommSignal>& signal() const { return signal_; }

 private:
  [[nodiscard]] Result<void> turn_until(bool (CommLifecycle::*reached)() const);
  [[nodiscard]] NcclStatus make(const CommLifecycle::Call& call);
  [[nodiscard]] NcclStatus enqueue(const DeviceOperation& operation);
  [[nodiscard]] NcclStatus conclude(DeviceOperation& operation);
  [[nodiscard]] NcclStatus fence();
  void hand_out_results();
  [[nodiscard]] Error error_of(const CommLifecycle::Failure& failure) const;
  [[nodiscard]] std::shared_ptr<DeviceOperation> barrier_operation();
  [[nodiscard]] DeviceOperation& operation(CommLifecycle::Ticket ticket);

  const std::shared_ptr<NcclRuntime> runtime_;
  const CommPlace place_;
  const std::shared_ptr<CommSignal> signal_;
  std::unique_ptr<CommLifecycle> lifecycle_;
  NcclComm comm_ = nullptr;
  LentEvent fence_;
  bool rested_ = false;  // the pause before the next call is over
  std::deque<std::shared_ptr<DeviceOperation>> operations_;  // unfinished, by ticket
  CommLifecycle::Ticket first_ticket_ = 0;                   // that of operations_.front()
  std::string explanation_;                                  // NCCL's description of the failure
};

}  // namespace mayfly::collectives
