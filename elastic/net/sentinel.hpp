#pragma once

// A tiny process beside each worker that reports the worker's death. After SIGKILL the kernel frees
// memory before it closes sockets, so a large worker's death shows late on its own connections; a
// robust mutex shared with the sentinel shows it at once. The sentinel also sends the heartbeats,
// so that a busy worker is not taken for a dead one.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "elastic/net/progress_board.hpp"

namespace mayfly::elastic {

/// Of the coordinators that a worker may be given.
inline constexpr std::size_t kEndpointsMax = 8;

class Sentinel {
 public:
  /// Tells the sentinel that this is a normal end, not a death, and waits for its exit.
  virtual ~Sentinel() = default;
  /// Tells the sentinel whose death to report, and to whom: `endpoints` are the job's coordinators
  /// (1 to kEndpointsMax), of which it follows the one at `connected`. From then on it keeps a
  /// connection of its own, sends heartbeats and reports the worker's death. Again after the worker
  /// has become a new member; endpoints and token stay those of the first call.
  virtual void arm(const std::vector<std::string>& endpoints, std::size_t connected, ByteSpan token,
                   MemberId self) = 0;
  /// The worker has a new connection, to this one of the endpoints: the sentinel follows at once.
  virtual void follow(std::size_t connected) = 0;
  /// The member has accepted this incarnation of this coordinator. Kept where the worker's end does
  /// not reach it, because the report of its death must name the highest.
  virtual void adopt(Incarnation incarnation, std::uint64_t author) = 0;
  /// Where the worker writes what it does; its heartbeats carry it, so that the coordinator can
  /// tell a worker that hangs from one that computes. Lives as long as the sentinel.
  [[nodiscard]] virtual ProgressBoard& board() = 0;
  /// The sentinel's process, for records and tests.
  [[nodiscard]] virtual int pid() const = 0;
};

/// Forks the sentinel. Call first thing in main, single-threaded, before any large allocation: in
/// the child it does not return. The calling thread must live as long as the process (it holds the
/// robust mutex). The child closes every inherited descriptor and ends with its worker.
[[nodiscard]] Result<std::unique_ptr<Sentinel>> fork_sentinel();

/// Starts the sentinel as a process of its own, for a worker that is large or has threads:
/// `program` is this product's, and is called with the one word kSentinelCommand. The calling
/// thread must live as long as the sentinel (it holds the robust mutex). kIo with the program.
[[nodiscard]] Result<std::unique_ptr<Sentinel>> spawn_sentinel(const std::string& program);
inline constexpr const char* kSentinelCommand = "sentinel";

/// What such a process does. Returns only if it was not started by spawn_sentinel() of the same
/// version.
void run_spawned_sentinel();

}  // namespace mayfly::elastic
