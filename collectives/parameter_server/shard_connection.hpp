#pragma once

// One connection of a worker to a shard, for shard_clients_loop.hpp only. One thread.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "collectives/parameter_server/link_watch.hpp"
#include "collectives/parameter_server/message_stream.hpp"
#include "collectives/parameter_server/shard_clients.hpp"
#include "collectives/parameter_server/shared_slots.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {

/// A message that is not to leave yet.
struct Late {
  Instant due;
  Header header;
  std::span<const float> payload;
};

/// To one shard.
struct Connection {
  collectives::TcpAddress address;
  LinkPhase phase = LinkPhase::kNone;
  std::unique_ptr<MessageStream> stream;
  bool is_local = false;               // over a Unix-domain socket
  std::shared_ptr<SharedSlots> slots;  // with this shard; null: none
  std::vector<Header> waiting;         // to be sent when we are let in
  std::deque<Late> late;               // to be sent when it is time, in order
  Instant next_try;
  bool was_ready = false;
  std::uint64_t known_version = 0;
  std::optional<StateVersion> state_version;
  LinkWatch watch;
};

}  // namespace mayfly::parameter_server
