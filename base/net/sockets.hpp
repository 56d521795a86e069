#pragma once

// TCP and Unix-domain sockets with errors as values. All descriptors are non-blocking and
// close-on-exec, TCP without Nagle's delay. A thread that may wait uses the functions with a
// deadline; an event loop uses the functions that transfer as many bytes as possible at once. Any
// thread, one at a time for each direction of a socket.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "base/net/addresses.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"

struct msghdr;

namespace mayfly {

// --- listening

/// Listens on a name or a numeric address, IPv4 or IPv6; port 0 takes any free one. kIo names the
/// address and the reason.
[[nodiscard]] Result<UniqueFd> listen_tcp(const Endpoint& endpoint);
/// Listens on a path, or on "@NAME" in the abstract namespace. kIo, kInvalidInput.
[[nodiscard]] Result<UniqueFd> listen_unix(const std::string& name);
/// The numeric address and the port of a socket's own end, and of its peer's; an empty host if it
/// is not a TCP socket or not connected.
[[nodiscard]] Endpoint bound_endpoint(int fd);
[[nodiscard]] Endpoint peer_endpoint(int fd);
/// The next waiting connection of a listening socket; an invalid descriptor, with errno, if there
/// is none.
[[nodiscard]] UniqueFd accept_one(int listener);

// --- connecting

/// A connection that is complete or in progress: it becomes writable, and connection_error() then
/// shows whether it failed. The host is numeric, so no name is resolved. An invalid descriptor: the
/// other side's queue is full, try again soon. kPeerLost: no process listens there. kUnreachable:
/// no packet can be sent to it, for example because there is no route. kIo: no descriptor is left.
[[nodiscard]] Result<UniqueFd> start_connect_tcp(const Endpoint& endpoint);
[[nodiscard]] Result<UniqueFd> start_connect_unix(const std::string& name);
/// 0, or the errno with which a connection under way has failed.
[[nodiscard]] int connection_error(int fd);

/// One attempt to connect, to each of addresses_of() the host in turn. kPeerLost if no process
/// listens there, kDeadline, kIo; the text contains the addresses.
[[nodiscard]] Result<UniqueFd> connect_tcp(const Endpoint& endpoint, Instant deadline);

/// Turns off delays for small TCP messages and sizes the send buffers of connections within the
/// host. Done for every socket that these functions return.
void tune_stream(int fd);

// --- transferring bytes until a deadline

/// Sends or receives exactly these bytes; waits while the peer does not read or write. kPeerLost,
/// kDeadline.
[[nodiscard]] Result<void> send_exactly(int fd, ByteSpan bytes, Instant deadline);
[[nodiscard]] Result<void> receive_exactly(int fd, std::span<std::byte> target, Instant deadline);

// --- transferring bytes at once

/// The number of bytes transferred; 0 if the call would have blocked.
struct Moved {
  std::size_t bytes = 0;
  bool closed = false;  ///< the connection is over
};
/// `more`: further bytes follow at once, so that a short TCP packet may wait for them.
[[nodiscard]] Moved send_some(int fd, const void* data, std::size_t bytes, bool more = false);
[[nodiscard]] Moved receive_some(int fd, void* data, std::size_t bytes);
/// The same, with a descriptor along with the bytes over a Unix-domain socket (-1: none).
[[nodiscard]] Moved send_with_descriptor(int fd, ByteSpan data, int descriptor);
/// Prepares a sendmsg() with a descriptor (-1: none); `control` outlives it, of CMSG_SPACE(an int),
/// aligned as a cmsghdr.
void attach_descriptor(msghdr& message, std::span<char> control, int descriptor);
/// Keeps a descriptor that arrived with the message in `descriptor`.
[[nodiscard]] Moved receive_with_descriptor(int fd, std::span<std::byte> into,
                                            UniqueFd& descriptor);
/// True if the other side has closed and nothing is left to read.
[[nodiscard]] bool at_end(int fd);

// --- waiting

/// True if the other host does not answer several transmissions in a row: packets are lost, or the
/// host is gone. A peer program that merely does not read does not count, because its host answers
/// for it. On a fast network this takes about 1.5 s of silence, 3 s for a connection in progress.
/// TCP only; false for other sockets.
[[nodiscard]] bool is_unreachable(int fd);
/// Makes the system ask once a second whether the other host is alive while no data is exchanged.
/// Then is_unreachable() is also true for a socket that only waits, after 3 s of silence. TCP only;
/// harmless on other sockets.
void ask_while_idle(int fd);
/// Makes the system close the connection, with ETIMEDOUT, if sent data is not acknowledged for so
/// long; by default it retries for about 15 minutes. TCP only; harmless on other sockets.
void limit_unanswered(int fd, Duration most);
/// How often to call is_unreachable() while waiting.
inline constexpr Duration kReachInterval = milliseconds(250);

/// Milliseconds for poll() until `deadline`, rounded up; 0 if it has passed.
[[nodiscard]] int poll_timeout_ms(Instant deadline);

}  // namespace mayfly
