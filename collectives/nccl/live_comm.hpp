#pragma once

// One communicator, driven: makes the calls that CommLifecycle asks for and hands results to the
// operations. Belongs to one thread at a time; only its CommSignal is for others.

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "collectives/nccl/comm_lifecycle.hpp"
#include "collectives/nccl/comm_signal.hpp"
#include "collectives/nccl/device_operation.hpp"

namespace mayfly::collectives {

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
