#pragma once

// Plain TCP sockets with deadlines. All descriptors are close-on-exec, non-blocking and without
// Nagle's delay. Used where a thread may wait (handshakes, the sentinel, one-shot commands); the
// long-lived connections hand their descriptor to Asio.

#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

struct Endpoint {
  std::string host;  ///< name or address, without brackets
  std::uint16_t port = 0;
};

/// Parses "host:port" or "[v6-address]:port"; kInvalidInput with the text otherwise.
[[nodiscard]] Result<Endpoint> parse_endpoint(const std::string& text);
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

/// A listening socket; port 0 takes any free one. kIo names the address and the reason.
[[nodiscard]] Result<UniqueFd> listen_tcp(const Endpoint& endpoint);
/// The port a socket is bound to.
[[nodiscard]] std::uint16_t local_port(int fd);
/// The next waiting connection; an invalid descriptor, with errno, if there is none.
[[nodiscard]] UniqueFd accept_tcp(int listener);

/// One attempt to connect, to each of addresses_of() the host in turn (elastic/net/own_addresses).
/// kPeerLost if nobody listens there, kDeadline, kIo, kInvalidInput; the text has the addresses.
[[nodiscard]] Result<UniqueFd> connect_tcp(const Endpoint& endpoint, Instant deadline);

/// Sends or receives exactly these bytes; waits while the peer does not read or write. kPeerLost,
/// kDeadline.
[[nodiscard]] Result<void> send_exactly(int fd, ByteSpan bytes, Instant deadline);
[[nodiscard]] Result<void> receive_exactly(int fd, std::span<std::byte> target, Instant deadline);
/// Sends one message; waits while the peer does not read. kPeerLost, kDeadline.
[[nodiscard]] Result<void> send_message(int fd, const Message& message, Instant deadline);
/// Receives one message and not a byte more. kPeerLost, kDeadline, kCorrupt.
[[nodiscard]] Result<Message> receive_message(int fd, Instant deadline);

}  // namespace mayfly::elastic
