#pragma once

// One started operation of an NCCL group. Owned by the communicator that runs it and by its Work:
// either may be gone first.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/nccl/nccl_runtime.hpp"

namespace mayfly::collectives {

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

  /// The communication thread: `done` is recorded.
  void set_on_stream();
  /// The communication thread, once: the operation is over and its buffers are free.
  void finish(Result<void> outcome);

  /// Until it is over; kDeadline otherwise.
  Result<void> wait_finished(Instant deadline);
  /// Until it is over.
  void wait_finished();
  /// When finish() was called; zero before.
  [[nodiscard]] Instant finished_at();
  /// Until it is on the stream (ok) or has failed before (why); kDeadline otherwise.
  Result<void> wait_on_stream(Instant deadline);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool on_stream_ = false;              // guarded by mutex_
  std::optional<Result<void>> result_;  // guarded by mutex_
  Instant finished_at_;                 // guarded by mutex_
};

}  // namespace mayfly::collectives
