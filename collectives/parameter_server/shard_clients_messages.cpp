// What shards say to a worker.

#include <algorithm>
#include <utility>

#include "collectives/parameter_server/lease_message.hpp"
#include "collectives/parameter_server/shard_clients_loop.hpp"

namespace mayfly::parameter_server {

Result<PayloadTarget> Clients::expect(std::uint32_t shard, const Header& header) {
  const std::uint64_t bytes = options_.elements[shard] * sizeof(float);
  const bool is_state = header.type == MessageType::kState;
  const bool is_answer = header.type == MessageType::kParameters;
  if (header.payload_bytes != (is_answer ? bytes : is_state ? 2 * bytes : 0)) {
    return Error{Errc::kCorrupt, "a message of the wrong size"};
  }
  if (header.slot != 0) {
    const bool is_there =
        is_answer && connections_[shard].slots != nullptr && header.slot == SharedSlots::kAnswer;
    return is_there ? Result<PayloadTarget>(PayloadTarget{})
                    : Result<PayloadTarget>(Error{Errc::kCorrupt, "a slot that is not shared"});
  }
  if ((is_answer && flow_.expects(shard, header.question)) || (is_state && wants_states_)) {
    return target_(shard, is_state);
  }
  return PayloadTarget{};
}

Result<void> Clients::handle(std::uint32_t shard, const Header& header) {
  switch (header.type) {
    case MessageType::kWelcome: handle_welcome(shard, header); return {};
    case MessageType::kParameters: return handle_answer(shard, header);
    case MessageType::kState:
      connections_[shard].state_version = StateVersion{header.version, header.slice};
      return {};
    case MessageType::kLease: {
      const Result<Lease> lease = lease_of(header);
      if (!lease.ok()) {
        return lease.error();
      }
      flow_.granted(lease.value());
      return {};
    }
    default: return Error{Errc::kCorrupt, "a message that shards do not send"};
  }
}

void Clients::handle_welcome(std::uint32_t shard, const Header& header) {
  Connection& connection = connections_[shard];
  connection.phase = LinkPhase::kReady;
  connection.watch.ready(monotonic_now());
  if ((header.flags & flags::kShares) == 0) {
    connection.slots.reset();
  } else if (connection.slots != nullptr) {
    connection.slots->open_answers();
  }
  flow_.welcomed(shard);
  if (std::exchange(connection.was_ready, true)) {
    flow_.reconnected(shard);
    if (wants_states_ && !connection.state_version) {
      send(shard, header_of(MessageType::kStatePull, shard));
    }
    if (said_bye_) {
      send(shard, header_of(MessageType::kBye, shard));
    }
  }
  for (const Header& message : std::exchange(connection.waiting, {})) {
    send(shard, message);
  }
}

Result<void> Clients::handle_answer(std::uint32_t shard, const Header& header) {
  Connection& connection = connections_[shard];
  const bool is_expected = flow_.expects(shard, header.question);
  if (header.slot != 0) {
    const TakenSlot answer(connection.slots, header.slot);
    const Result<void> copied = is_expected
                                    ? copy_payload(answer.payload(), header, target_(shard, false))
                                    : Result<void>();
    if (!copied.ok()) {
      return copied;
    }
  }
  connection.known_version = std::max(connection.known_version, header.version);
  if (is_expected) {
    flow_.answered(shard, header.version);
  }
  return {};
}

}  // namespace mayfly::parameter_server
