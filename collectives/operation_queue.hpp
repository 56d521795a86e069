#pragma once

// Runs the operations of one group over its link, one after the other, on whichever thread is at
// hand: a thread that waits for an operation which nobody has begun carries it out itself, which
// spares two switches of threads; the others are the queue's own thread's.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "collectives/group.hpp"
#include "collectives/ring_link.hpp"

namespace mayfly::collectives {

/// One started operation.
struct Operation {
  RingTask task;
  std::int32_t scratch = 0;            ///< what a barrier sums
  std::optional<Result<void>> result;  ///< guarded by the queue
  Instant finished_at;                 ///< guarded by the queue
};

class OperationQueue : public std::enable_shared_from_this<OperationQueue> {
 public:
  /// `link` may be null: then there is nobody to exchange anything with.
  explicit OperationQueue(std::unique_ptr<RingLink> link);
  ~OperationQueue();

  /// Appends; one thread at a time.
  [[nodiscard]] std::unique_ptr<Work> start(std::shared_ptr<Operation> operation);
  /// The same and wait() in one: does not call the queue's thread. After kDeadline the queue is
  /// aborted.
  [[nodiscard]] Result<void> run(const std::shared_ptr<Operation>& operation, Instant deadline);
  /// Any thread, never blocks.
  void abort() noexcept;
  /// Aborts, fails what is left, ends the thread and destroys the link. Afterwards only wait() is
  /// of use.
  void close();

  /// For Work: until the operation is complete, or kDeadline. Any thread.
  [[nodiscard]] Result<void> wait(const Operation& operation, std::optional<Instant> deadline);
  /// For Work: see Work::finished_at().
  [[nodiscard]] Instant finished_at(const Operation& operation) const;

 private:
  void serve();
  void append(std::shared_ptr<Operation> operation);
  void run_until(std::unique_lock<std::mutex>& lock, const Operation* wanted,
                 std::optional<Instant> until);
  bool run_first(std::unique_lock<std::mutex>& lock, std::optional<Instant> until);

  std::unique_ptr<RingLink> link_;  // used by who holds running_
  std::atomic<bool> aborted_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for who waits for operations
  std::condition_variable call_;     // for the thread
  // Guarded by mutex_:
  std::deque<std::shared_ptr<Operation>> queue_;
  std::optional<Error> failure_;  // of the first that failed, and so of all after it
  bool begun_ = false;            // the link works on the first of the queue
  bool running_ = false;          // a thread works on the queue
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace mayfly::collectives
