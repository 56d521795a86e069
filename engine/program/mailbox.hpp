#pragma once

// What the trainer's thread asks of the program's own thread, which computes: microbatches one
// after the other, and what the trainer waits for (an update, another state, an evaluation). The
// program comes for its next task when it has done the one before.

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
    kUpdate,      ///< the step's means are there: update the parameters
    kLoad,        ///< another state has come: take what the library cannot put in place itself
    kEvaluate,    ///< evaluate a chunk of the test set
    kEnd,         ///< this process's part in the job is over
  };
  Kind kind = Kind::kEnd;
  std::uint64_t step = 0;    ///< that is computed or updated, from 1; of the state that is loaded
  std::uint32_t number = 0;  ///< of the microbatch in its step, or of the chunk
  bool is_repeated = false;  ///< a microbatch whose result is compared and not added
  double loss = 0;           ///< of the step that is updated: its mean
};

class Mailbox {
 public:
  // The trainer's thread:
  /// Queues a microbatch.
  void add(const ProgramTask& task);
  /// Blocks until all that was queued is done; false if interrupted first.
  [[nodiscard]] bool wait_until_done();
  /// Drops what is queued and not begun.
  void drop_queued();
  /// The same, and waits until what was begun is done.
  void discard();
  /// Asks for something else than a microbatch of the queue, and waits until it is done; it goes
  /// before what is queued. Cannot be interrupted.
  void ask(const ProgramTask& task);
  /// From now on the program is told that its part is over.
  void end();

  // Any thread:
  void interrupt();
  void clear_interrupt();
  [[nodiscard]] bool is_interrupted() const;
  /// The program has failed and will not ask for tasks any more, and its process is about to end.
  /// Until then threads that wait for the program still wait, as for a process that hangs.
  void abandon();

  // The program's thread:
  /// The next task; nothing if there is none within `patience`. An update or a load that was taken
  /// is done with that. A microbatch or an evaluation must be done().
  [[nodiscard]] std::optional<ProgramTask> next(Duration patience);
  /// The microbatch or evaluation that was taken is done.
  void done();
  /// What was taken and is not done.
  [[nodiscard]] std::optional<ProgramTask> current() const;

 private:
  [[nodiscard]] bool has_work() const {
    return ended_ || (asked_ && !is_taken_) || !queue_.empty();
  }
  [[nodiscard]] ProgramTask take();
  void finish_current();

  mutable std::mutex mutex_;
  std::condition_variable for_trainer_;
  std::condition_variable for_program_;
  // Guarded by mutex_:
  std::deque<ProgramTask> queue_;
  std::optional<ProgramTask> asked_;
  bool is_taken_ = false;  // asked_
  std::optional<ProgramTask> current_;
  bool ended_ = false;
  bool interrupted_ = false;
  bool abandoned_ = false;
};

}  // namespace mayfly::engine
