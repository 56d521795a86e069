#pragma once

// Private to the mpi module: needs Open MPI's headers.
//
// MPI of this process: started once, ended once. MPI knows one set of processes, those that mpirun
// started together; a member is one of them, named by its rank there ("world rank").

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

/// All members: one thread at a time calls MPI (MPI_THREAD_SERIALIZED); which one is decided by
/// the group, or by the transport while it forms one.
class MpiWorld {
 public:
  /// Ok inside mpirun, else kUnsupported with what to do.
  static Result<void> probe();
  /// Starts MPI, which waits for all ranks of the mpirun; a rank that dies before its own start
  /// makes that wait endless, so the process ends with one line if it takes two minutes. Under
  /// --enable-recovery all ranks are connected with each other afterwards, for good.
  /// `share_cores`: MPI gives way to other threads while it waits.
  static Result<std::unique_ptr<MpiWorld>> start(bool share_cores);
  /// Ends MPI, unless a rank died or may die, for which the end would wait for ever. A process that
  /// never was in a view has failed before: it leaves at once, so that mpirun ends the others.
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
  /// Tags come in pairs, one pair per view; views that far apart that they share one never meet.
  [[nodiscard]] int tag_of(ViewId view, int kind) const;

  /// Brackets an exchange in which MPI may connect ranks once more than start() did (a network that
  /// it had not used): between the two, new connections of this process are MPI's and will outlive
  /// it. The second may be called often.
  void begin_connecting();
  void keep_connections();

  /// Takes over a message that is still under way. A receive is cancelled. Memory is kept until MPI
  /// is done with it, which for a message to a dead rank is never.
  void abandon(AbandonedMessage message);
  /// Frees what is done.
  void sweep();
  /// Frees what is done, and lets MPI do what is left of finished operations, which other ranks may
  /// wait for.
  void settle();
  /// A view was formed.
  void note_view() { was_in_view_.store(true, std::memory_order_relaxed); }
  /// MPI reported an error: it cannot be ended properly any more.
  void spoil() { spoiled_.store(true, std::memory_order_relaxed); }

 private:
  explicit MpiWorld(std::unique_ptr<FdHolder> holder);
  void connect_and_keep();

  const std::unique_ptr<FdHolder> holder_;  // null: not elastic
  int rank_ = 0;
  int size_ = 0;
  int tag_pairs_ = 1;
  MPI_Comm comm_ = MPI_COMM_NULL;  // the world's ranks, apart from other users' messages
  std::string job_;
  std::atomic<bool> was_in_view_{false};
  std::atomic<bool> spoiled_{false};
  std::vector<AbandonedMessage> abandoned_;
};

inline constexpr int kHelloTag = 0;  ///< kinds of tag_of()
inline constexpr int kDataTag = 1;

/// Ends the process with one line on standard error if a call of MPI does not return in time, since
/// MPI leaves no other way out. mpirun without --enable-recovery then ends the job. Any thread.
class Watchdog {
 public:
  Watchdog(Duration limit, const char* reason);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Around the call. False: the clock runs, and the call must not be made.
  [[nodiscard]] bool enter();
  void leave();
  /// A call that is being made, if there is one, has `limit` from now on. Never blocks.
  void start_clock() noexcept;

 private:
  void watch();

  const Duration limit_;
  const char* const reason_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_inside_{false};  // without a lock: around every operation
  std::atomic<bool> runs_{false};       // the clock
  bool ends_ = false;                   // guarded by mutex_
  std::thread thread_;                  // the last: it uses the rest
};

/// MPI's return value as a Result: kPeerLost for everything but kCorrupt (a message of another size
/// than expected). `with` is the member at the other end, where there is one.
[[nodiscard]] Result<void> check_mpi(int code, const char* what,
                                     std::optional<MemberId> with = std::nullopt);

}  // namespace mayfly::collectives
