#pragma once

// A small process beside each worker that reports the worker's death. After SIGKILL the kernel
// frees memory before it closes sockets, so the connections of a large worker end late, but a
// robust mutex that it shares with the sentinel is released at once. The sentinel also sends the
// heartbeats, so that a busy worker is not taken for a dead one. One thread at a time, except for
// board().

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "elastic/net/progress_board.hpp"

namespace mayfly::elastic {

/// Upper bound on the coordinators of a worker's list.
inline constexpr std::size_t kEndpointsMax = 8;

class Sentinel {
 public:
  /// Tells the sentinel that this is a normal end, not a death, and waits for its exit.
  virtual ~Sentinel() = default;
  /// Tells the sentinel its worker's member id, the job (Welcome::job) and the job's coordinators:
  /// `endpoints` (1 to kEndpointsMax), of which the worker is connected to the one at index
  /// `connected`. From then on the sentinel keeps a connection of its own to that one, sends
  /// heartbeats and reports the worker's death. To be called again when the worker has become a new
  /// member; endpoints and token stay those of the first call.
  virtual void arm(const std::vector<std::string>& endpoints, std::size_t connected, ByteSpan token,
                   MemberId self, std::uint64_t job) = 0;
  /// The worker has a new connection, to the endpoint with this index; the sentinel connects to it,
  /// too.
  virtual void follow(std::size_t connected) = 0;
  /// The member has accepted this incarnation of this coordinator. It is stored outside the
  /// worker's process, because the report of the worker's death must name the highest one.
  virtual void adopt(Incarnation incarnation, std::uint64_t author) = 0;
  /// The worker lives, but takes part no longer: the job is to lose it now, and not when its
  /// process ends, which may have more to do. Any thread.
  virtual void give_up() = 0;
  /// Where the worker writes its position, which the heartbeats contain, so that the coordinator
  /// can distinguish a worker that hangs from one that computes. Valid as long as this object.
  [[nodiscard]] virtual ProgressBoard& board() = 0;
  /// The sentinel's process, for records and tests.
  [[nodiscard]] virtual int pid() const = 0;
};

/// Forks the sentinel. Call first thing in main, single-threaded, before any large allocation: in
/// the child it does not return. The calling thread must live as long as the process (it holds the
/// robust mutex). The child closes every inherited descriptor and ends with its worker.
[[nodiscard]] Result<std::unique_ptr<Sentinel>> fork_sentinel();

/// Starts the sentinel as a separate program, for a worker that is large or has threads: `program`
/// is the path of `mayfly`, which is called with the one word kSentinelCommand. The calling thread
/// must live as long as the sentinel (it holds the robust mutex). kIo, naming the program, if it
/// cannot be started.
[[nodiscard]] Result<std::unique_ptr<Sentinel>> spawn_sentinel(const std::string& program);
inline constexpr const char* kSentinelCommand = "sentinel";

/// The main function of that program. Returns only if it was not started by spawn_sentinel() of the
/// same version.
void run_spawned_sentinel();

}  // namespace mayfly::elastic
