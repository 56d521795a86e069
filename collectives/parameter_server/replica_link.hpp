#pragma once

// The connection of a shard's leader to its follower: sends what the leader is told, entry by entry
// (core/replica_log.hpp), and hears how much the follower has. A connection that breaks is made
// again, and what is not known to have been taken is sent once more. On the shard's thread.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "collectives/parameter_server/link_watch.hpp"
#include "collectives/parameter_server/message_stream.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {

/// Something that the leader was told.
struct ReplicaEntry {
  Header header;                     ///< as it came, with its number in `entry`
  std::vector<std::uint64_t> words;  ///< kRoster, kStragglers
};

class ReplicaLink {
 public:
  /// `shard`: its number. `gradient_of`: the pushed floats that belong to an entry; empty if it
  /// changes nothing. They must stay where they are until the entry is taken.
  using GradientOf = std::function<ByteSpan(const Header&)>;
  /// The follower has all entries up to this one; an error ends the connection.
  using OnTaken = std::function<Result<void>(std::uint64_t)>;
  /// Packets to the follower are lost, or it cannot be reached; told once in each view.
  using OnUnreachable = std::function<void()>;
  ReplicaLink(std::uint32_t shard, bool payload_hashes, GradientOf gradient_of, OnTaken on_taken,
              OnUnreachable on_unreachable);

  /// The view that lets us in, and where the follower is. kInvalidInput if that is no address.
  /// Before the first one nothing is connected.
  [[nodiscard]] Result<void> set_view(ViewId view, std::uint64_t key, const std::string& address);
  void send(ReplicaEntry entry);

  /// For poll(): a descriptor (or -1) and events; how long to wait for at most.
  [[nodiscard]] int fd() const { return stream_ != nullptr ? stream_->fd() : -1; }
  [[nodiscard]] short events() const;
  [[nodiscard]] std::optional<Instant> deadline() const;
  /// After poll(): connects, sends, receives.
  void serve(short events);
  /// So many bytes were sent so far.
  [[nodiscard]] std::uint64_t bytes_out() const { return bytes_out_; }

 private:
  void connect();
  void greet();
  void lose(const std::string& why);
  void put(const ReplicaEntry& entry);
  Result<void> handle(const Header& header);
  void look_after();

  const std::uint32_t shard_;
  const bool payload_hashes_;
  const GradientOf gradient_of_;
  const OnTaken on_taken_;
  const OnUnreachable on_unreachable_;
  const std::string own_host_;
  std::optional<collectives::TcpAddress> address_;  // once a view has named the follower
  ViewId view_{};
  std::uint64_t key_ = 0;
  LinkPhase phase_ = LinkPhase::kNone;
  std::unique_ptr<MessageStream> stream_;
  Instant next_try_;
  LinkWatch watch_;
  std::deque<ReplicaEntry> entries_;  // not known to have been taken
  std::uint64_t bytes_out_ = 0;
};

}  // namespace mayfly::parameter_server
