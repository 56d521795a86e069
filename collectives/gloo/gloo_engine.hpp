#pragma once

// The engine of a gloo group: a ring of Gloo's messages between neighbours. Gloo's stock all-reduce
// cannot be stopped from another thread. Private to the gloo transport: needs Gloo's headers.

#include <gloo/rendezvous/context.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/unique_fd.hpp"
#include "collectives/group.hpp"
#include "collectives/group_engine.hpp"

namespace gloo::transport {
class UnboundBuffer;
}

namespace mayfly::collectives {

/// Stops one formation and the group that results from it. None of Gloo's own functions is enough:
/// closing connections from another thread does not wake a waiting one, aborting waits does not
/// reach a thread that is connecting, and shutting down sockets alone loses wake-ups. So abort()
/// sets a flag, aborts the waits on all live buffers and shuts down the pairs' sockets.
class GlooAborter {
 public:
  /// Any thread, any number of times, never blocks.
  void abort() noexcept;
  [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// Records the addresses that a rank publishes for `pair_count` peers; the sockets at those
  /// addresses belong to the pairs. Connecting thread.
  void note_addresses(ByteSpan published, std::size_t pair_count);
  /// Duplicates the pairs' sockets, once all are connected. With duplicates abort() never shuts
  /// down a descriptor number that Gloo has closed and that another socket now has.
  void capture_sockets();
  /// Shuts the pairs down, so that Gloo closes them at once instead of at its next tick.
  void shut_down() noexcept;

  /// While the guard exists, abort() also ends a wait on this buffer.
  class Guard {
   public:
    Guard(GlooAborter& aborter, gloo::transport::UnboundBuffer& buffer);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    GlooAborter& aborter_;
    gloo::transport::UnboundBuffer& buffer_;
  };

 private:
  [[nodiscard]] std::vector<UniqueFd> find_sockets() const;

  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::vector<sockaddr_storage> addresses_;               // guarded by mutex_
  std::vector<UniqueFd> sockets_;                         // guarded by mutex_
  std::vector<gloo::transport::UnboundBuffer*> buffers_;  // existing ones; guarded by mutex_
};

/// An engine over a connected Gloo context, for the member with this rank. `aborter` is shared with
/// the thread that formed the context.
[[nodiscard]] std::unique_ptr<GroupEngine> make_gloo_engine(
    std::shared_ptr<gloo::rendezvous::Context> context, const std::vector<Peer>& peers,
    std::shared_ptr<GlooAborter> aborter);

}  // namespace mayfly::collectives
