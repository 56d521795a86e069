#pragma once

// The connection of a shard's leader to its follower. It sends the leader's messages, entry by
// entry (core/replicas.hpp), and records how many of them the follower has. When a connection
// breaks, the entries that the follower is not known to have are sent again over the next one. Used
// by the leader's thread only.

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/parameter_server/connection.hpp"
#include "collectives/parameter_server/message.hpp"

namespace mayfly::parameter_server {

class ReplicaLink {
 public:
  struct Handlers {
    /// The follower has all entries up to this one. An error ends the connection.
    std::function<Result<void>(std::uint64_t entry)> on_taken;
    /// Packets to the follower are lost, or it cannot be reached; called at most once in each view.
    std::function<void()> on_unreachable;
  };
  /// `shard`: its number. With `payload_hashes` gradients are sent with a hash.
  ReplicaLink(std::uint32_t shard, bool payload_hashes, Handlers handlers);

  /// The view whose key proves to the follower that this server leads, and the follower's address.
  /// kInvalidInput if that is no address. Before the first view nothing is connected.
  [[nodiscard]] Result<void> set_view(ViewId view, std::uint64_t key, const std::string& address);
  /// Sends the entry, now or when there is a connection.
  void send(ReplicaEntry entry);

  /// For poll(): a descriptor (or -1) and events; the latest time for serve().
  [[nodiscard]] int fd() const { return connection_.fd(); }
  [[nodiscard]] short events() const { return connection_.events(); }
  [[nodiscard]] std::optional<Instant> deadline() const;
  /// After poll(): connects, sends and receives, and calls the handlers.
  void serve(short events);

  /// Bytes that were sent so far, including headers.
  [[nodiscard]] std::uint64_t bytes_out() const { return bytes_out_; }

 private:
  void put(const ReplicaEntry& entry);
  Result<void> handle(const Header& header);
  /// For the view's follower, or for what it has not taken.
  [[nodiscard]] bool waits() const {
    return has_view_ && (!connection_.is_ready() || !entries_.empty());
  }

  const std::uint32_t shard_;
  const bool payload_hashes_;
  const Handlers handlers_;
  ShardConnection connection_;
  bool has_view_ = false;
  ViewId view_{};
  std::uint64_t key_ = 0;
  std::deque<ReplicaEntry> entries_;  // not known to have been taken
  std::uint64_t bytes_out_ = 0;
};

}  // namespace mayfly::parameter_server
