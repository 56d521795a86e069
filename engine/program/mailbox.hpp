#pragma once

// The tasks that the trainer's thread gives to the program's own thread, which computes:
// microbatches, which are queued, and tasks for which the trainer waits (an update, a new state, an
// evaluation). The program calls next() for each task when the previous one is done.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "base/time.hpp"

namespace mayfly::engine {

struct ProgramTask {
  enum class Kind : std::uint8_t {
    kMicrobatch,  ///< compute it and add its result
    kUpdate,      ///< update the parameters with the step's means
    kLoad,        ///< a state was received: load the parts that the library cannot write itself
    kEvaluate,    ///< evaluate a chunk of the test set
    kEnd,         ///< this process has left the job
  };
  Kind kind = Kind::kEnd;
  std::uint64_t step = 0;    ///< that is computed or updated, from 1; or of the loaded state
  std::uint32_t number = 0;  ///< of the microbatch in its step, or of the chunk
  bool is_repeated = false;  ///< a microbatch whose result is compared and not added
  double loss = 0;           ///< kUpdate: the mean loss of the step
};

class Mailbox {
 public:
  // The trainer's thread:
  /// Queues a microbatch.
  void add(const ProgramTask& task);
  /// Blocks until all queued microbatches are done; false if interrupted first.
  [[nodiscard]] bool wait_until_done();
  /// Drops queued microbatches that the program has not begun.
  void drop_queued();
  /// The same, and waits until the microbatch that it has begun is done.
  void discard();
  /// Gives the program another task than a queued microbatch, before all queued ones, and waits
  /// until it is done. Cannot be interrupted.
  void ask(const ProgramTask& task);
  /// From now on next() returns kEnd.
  void end();

  // Any thread:
  void interrupt();
  void clear_interrupt();
  [[nodiscard]] bool is_interrupted() const;
  /// To be called when the program has failed: it will not call next() any more, and its process is
  /// about to end. Threads that wait for the program wait until then, as for a process that hangs.
  void abandon();

  // The program's thread:
  /// The next task; nothing if there is none within `patience`. The call also completes an update
  /// or a load. A microbatch or an evaluation must be completed with done() before.
  [[nodiscard]] std::optional<ProgramTask> next(Duration patience);
  /// Completes the present microbatch or evaluation.
  void done();
  /// The present task: returned by next() and not completed.
  [[nodiscard]] std::optional<ProgramTask> current() const;

 private:
  [[nodiscard]] bool has_work() const {
    return ended_ || (requested_ && !is_taken_) || !queue_.empty();
  }
  [[nodiscard]] ProgramTask take();
  void finish_current();

  mutable std::mutex mutex_;
  std::condition_variable for_trainer_;
  std::condition_variable for_program_;
  // Guarded by mutex_:
  std::deque<ProgramTask> queue_;
  std::optional<ProgramTask> requested_;
  bool is_taken_ = false;  // next() has returned requested_
  std::optional<ProgramTask> current_;
  bool ended_ = false;
  bool interrupted_ = false;
  bool abandoned_ = false;
};

}  // namespace mayfly::engine
