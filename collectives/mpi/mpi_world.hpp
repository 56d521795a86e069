#pragma once

// Private to the mpi module: needs Open MPI's headers.
//
// MPI of this process: started once, ended once. MPI knows one set of processes, those that mpirun
// started together; a member is identified by its rank among them ("world rank").

#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "collectives/mpi/fd_holder.hpp"

namespace mayfly::collectives {

/// A message of an aborted operation, with the memory that MPI may still use for it.
struct AbandonedMessage {
  MPI_Request request = MPI_REQUEST_NULL;
  AlignedBuffer<std::byte> memory;
};

/// Only one thread at a time may call MPI (MPI_THREAD_SERIALIZED), for all functions; the group
/// decides which one, or the transport while it forms a group.
class MpiWorld {
 public:
  /// Ok inside mpirun, otherwise kUnsupported with the command to use.
  static Result<void> probe();
  /// Starts MPI, which waits for all ranks of the mpirun. If a rank dies before it has started MPI,
  /// that wait has no end, so the process ends with one line of text after two minutes. Under
  /// --enable-recovery all ranks are connected with each other afterwards, permanently.
  /// `share_cores`: MPI yields to other threads while it waits.
  static Result<std::unique_ptr<MpiWorld>> start(bool share_cores);
  /// Ends MPI, unless a rank has died or may die, because MPI_Finalize would wait for it for ever.
  /// A process that was never in a view has failed before: it exits at once, so that mpirun ends
  /// the other ranks.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// True under `mpirun --enable-recovery`: the death of a rank does not end the others.
  [[nodiscard]] bool elastic() const { return holder_ != nullptr; }
  [[nodiscard]] MPI_Comm comm() const { return comm_; }
  /// "mpi:JOB:WORLDRANK".
  [[nodiscard]] std::string address() const;
  /// The world ranks of a view's members; kInvalidInput for one of another mpirun.
  [[nodiscard]] Result<std::vector<int>> ranks_of(const std::vector<Peer>& peers) const;
  /// Tags are assigned in pairs, one pair per view. Views with the same pair are so far apart that
  /// their messages cannot meet.
  [[nodiscard]] int tag_of(ViewId view, int kind) const;

  /// The two functions enclose an exchange in which MPI may make further connections, for example
  /// over a network that it had not used in start(). New connections of this process in between are
  /// MPI's and will outlive the process. The second function may be called often.
  void begin_connecting();
  void keep_connections();

  /// Takes over a message that is still in transit. A receive is cancelled. Its memory is kept
  /// until MPI has finished with it, which never happens for a message to a dead rank.
  void abandon(AbandonedMessage message);
  /// Frees the messages that are complete.
  void sweep();
  /// Frees the messages that are complete, and lets MPI continue the remaining work of finished
  /// operations, for which other ranks may wait.
  void settle();
  /// A view was formed.
  void note_view() { was_in_view_.store(true, std::memory_order_relaxed); }
  /// MPI has reported an error, so it cannot be ended properly any more.
  void spoil() { spoiled_.store(true, std::memory_order_relaxed); }

 private:
  explicit MpiWorld(std::unique_ptr<FdHolder> holder);
  void connect_and_keep();

  const std::unique_ptr<FdHolder> holder_;  // null: not elastic
  int rank_ = 0;
  int size_ = 0;
  int tag_pairs_ = 1;
  MPI_Comm comm_ = MPI_COMM_NULL;  // the world's ranks, separate from other users' messages
  std::string job_;
  std::atomic<bool> was_in_view_{false};
  std::atomic<bool> spoiled_{false};
  std::vector<AbandonedMessage> abandoned_;
};

inline constexpr int kHelloTag = 0;  ///< kinds of tag_of()
inline constexpr int kDataTag = 1;

/// Ends the process with one line on standard error if a call of MPI does not return in time,
/// because such a call cannot be stopped. mpirun without --enable-recovery then ends the job. Any
/// thread.
class Watchdog {
 public:
  Watchdog(Duration limit, const char* reason);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// To be called before and after the call. False: the clock runs, and the call must not be made.
  [[nodiscard]] bool enter();
  void leave();
  /// If a call is in progress, it must return within `limit` from now on. Never blocks.
  void start_clock() noexcept;

 private:
  void watch();

  const Duration limit_;
  const char* const reason_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_inside_{false};  // without a lock: around every operation
  std::atomic<bool> runs_{false};       // the clock was started
  bool ends_ = false;                   // guarded by mutex_
  std::thread thread_;                  // the last member, because the thread uses the others
};

/// MPI's return value as a Result: kCorrupt for a message of an unexpected size, otherwise
/// kPeerLost. `with` is the member at the other end, if there is one.
[[nodiscard]] Result<void> check_mpi(int code, const char* what,
                                     std::optional<MemberId> with = std::nullopt);

}  // namespace mayfly::collectives
