#pragma once

// The leader of a shard, seen from its follower: which of the leader's messages are new, which
// event each of them contains, and up to which entry they are acknowledged (core/replicas.hpp). It
// does not know connections: when one breaks, the leader sends the entries that were not
// acknowledged again over the next one. One thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "collectives/parameter_server/core/replicas.hpp"
#include "collectives/parameter_server/core/shard_core.hpp"
#include "collectives/parameter_server/message.hpp"
#include "collectives/parameter_server/message_stream.hpp"
#include "collectives/parameter_server/pushed_gradients.hpp"

namespace mayfly::parameter_server {

class FollowedLeader {
 public:
  /// `shard`: its number; `payload_bytes`: of a gradient.
  FollowedLeader(std::uint32_t shard, std::uint64_t payload_bytes)
      : shard_(shard), payload_bytes_(payload_bytes) {}

  /// The memory for a message's payload, for MessageStream::OnHeader: for a gradient it is memory
  /// of `gradients`. kCorrupt.
  [[nodiscard]] Result<PayloadTarget> expect(const Header& header, PushedGradients& gradients);

  /// An event that the leader has received, and that this server must carry out now.
  struct Entry {
    ShardEvent event;
    PushedSum gradient;  ///< of a push that changes the leader's parameters; otherwise empty
  };
  /// The entry in this message, which has arrived completely; it counts as taken. Nothing if it was
  /// taken before. kCorrupt if the leader has left out an entry, or does not send such messages.
  [[nodiscard]] Result<std::optional<Entry>> take(const Header& header);

  /// The answer to the leader's greeting.
  [[nodiscard]] Header welcome();
  /// The message that acknowledges all entries taken so far; nothing if it has been made before.
  [[nodiscard]] std::optional<Header> acknowledgement();

 private:
  [[nodiscard]] Header message(MessageType type);

  const std::uint32_t shard_;
  const std::uint64_t payload_bytes_;
  FollowerLog log_;
  std::uint64_t acknowledged_ = 0;
  PushedSum space_;                   // for the gradient that is being received
  std::vector<std::uint64_t> words_;  // for the roster or the stragglers that are being received
};

}  // namespace mayfly::parameter_server
