#pragma once

// One communicator, driven: makes the calls that CommLifecycle asks for and hands results to the
// operations. Belongs to one thread at a time; only its CommSignal is for others.

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

/// How other threads reach the one that drives a communicator: to stop it, or to make it look
/// again. Any thread.
class CommSignal {
 public:
  /// Stays in force.
  void abort() noexcept {
    aborted_.store(true, std::memory_order_release);
    notify();
  }
  [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// Ends a sleep, or the next one if nobody sleeps.
  void notify() noexcept {
    const std::lock_guard lock(mutex_);
    news_ = true;
    changed_.notify_all();
  }
  /// Until there is news, or for `at_most`. Zero: just lets other threads run.
  void sleep(Duration at_most);
  /// Until there is news.
  void sleep();

 private:
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = false;  // guarded by mutex_
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
  const LentEvent done;  ///< happens when the operation is complete; recorded once on the stream

  /// The communication thread, once: the operation is over and its buffers are free.
  void finish(Result<void> outcome);

  /// Until it is over; kDeadline otherwise.
  Result<void> wait_finished(Instant deadline);
  /// Until it is over.
  void wait_finished();
  /// When finish() was called; zero before.
  [[nodiscard]] Instant finished_at();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<void>> result_;  // guarded by mutex_
  Instant finished_at_;                 // guarded by mutex_
};

/// Which communicator to form, and our place in it.
struct CommPlace {
  NcclUniqueId id{};
  std::vector<MemberId> members;  ///< by rank
  std::uint32_t rank = 0;
};

class LiveComm {
 public:
  /// Nothing is called before connect().
  LiveComm(std::shared_ptr<NcclRuntime> runtime, CommPlace place);
  /// Aborts the communicator unless it is over.
  ~LiveComm();
  LiveComm(const LiveComm&) = delete;
  LiveComm& operator=(const LiveComm&) = delete;

  /// Blocks until the communicator is there. Runs nothing on the device, so that it does not get
  /// between the operations of another one. kAborted (by the signal), kDeadline, kPeerLost, kIo,
  /// kInvalidInput; then the communicator is over.
  [[nodiscard]] Result<void> connect(Instant deadline);
  /// After connect(): blocks until every member is here, by a first barrier, which also makes what
  /// operations need on the device. Fails as connect() does.
  [[nodiscard]] Result<void> meet(Instant deadline);

  /// Queues an operation, to be started by a later turn().
  void submit(std::shared_ptr<DeviceOperation> operation);
  /// No more operations will be submitted: goes on to the end in good order if nothing is left to
  /// do, else by an abort.
  void close(Instant deadline);
  /// Makes at most one call. Returns how long to sleep before the next turn: zero for not at all,
  /// nothing for until there is news.
  [[nodiscard]] std::optional<Duration> turn();
  [[nodiscard]] bool over() const { return lifecycle_->over(); }

  /// Any thread. Outlives nobody: the owner of the communicator shares it with who may abort.
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
  bool rested_ = false;  // the pause before the next call was waited already
  std::deque<std::shared_ptr<DeviceOperation>> operations_;  // unfinished, by ticket
  CommLifecycle::Ticket first_ticket_ = 0;                   // that of operations_.front()
  std::string explanation_;                                  // NCCL's words on the failure
};

}  // namespace mayfly::collectives
