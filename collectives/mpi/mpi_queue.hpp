#pragma once

// Private to the mpi module: needs Open MPI's headers.
//
// The operations of one group in order, and who carries them out. At any time at most one thread
// drives, that is, calls MPI: a thread that waits for an operation, or else the queue's own.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/mpi/mpi_engine.hpp"

namespace mayfly::collectives {

/// A started operation: in the queue and in its Work, either of which may be gone first. The
/// outcome is guarded by the queue's mutex.
struct MpiOperation {
  MpiTask task;
  std::optional<Result<void>> outcome;
  Instant finished_at;

  void finish(Result<void> result) {
    finished_at = monotonic_now();
    outcome = std::move(result);
  }
};

/// Shared by the group and by its Works: a Work may outlive the group, whose close() has then
/// decided all outcomes.
class MpiQueue {
 public:
  MpiQueue(MpiWorld& world, std::unique_ptr<MpiEngine> engine);
  ~MpiQueue();
  MpiQueue(const MpiQueue&) = delete;
  MpiQueue& operator=(const MpiQueue&) = delete;

  /// Any operation after a failure has that failure's outcome.
  void start(std::shared_ptr<MpiOperation> operation);
  /// As Work::wait.
  [[nodiscard]] Result<void> wait(MpiOperation& operation, Instant deadline);
  /// As Work::finished_at.
  [[nodiscard]] Instant finished_at(const MpiOperation& operation);
  /// As Group::abort.
  void abort() noexcept;
  /// Aborts, and returns when nobody drives any more. Call once.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] bool may_drive_until(Instant deadline) const;
  void drive(Lock& lock, const MpiOperation* until, Instant deadline);
  [[nodiscard]] bool drive_front(const MpiOperation* until, Instant deadline);
  [[nodiscard]] std::shared_ptr<MpiOperation> front();
  void finish_front(Result<void> outcome);
  void fail_all(const Error& failure);

  void run();
  void sleep(Lock& lock);
  void end_if_stuck(Lock& lock);

  MpiWorld& world_;
  const std::unique_ptr<MpiEngine> engine_;
  std::unique_ptr<MpiRun> run_;  // of the first operation; of the thread that drives
  std::atomic<bool> aborted_{false};

  std::mutex mutex_;
  std::condition_variable work_;      // for the queue's thread
  std::condition_variable finished_;  // for those who wait
  // Guarded by mutex_:
  std::deque<std::shared_ptr<MpiOperation>> operations_;
  std::optional<Error> failure_;
  std::uint64_t started_ = 0;
  bool driving_ = false;  // somebody calls MPI
  bool asleep_ = false;   // the thread has to be woken for new operations
  bool closing_ = false;
  // Of the queue's thread: how long it sleeps before it looks whether it is needed.
  Duration nap_{};
  std::thread thread_;
};

}  // namespace mayfly::collectives
