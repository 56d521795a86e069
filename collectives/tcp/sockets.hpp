#pragma once

// The few socket calls that the tcp transport needs, with errors as values. All descriptors are
// non-blocking and close-on-exec.

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::collectives {

/// Listens on `host` (name or numeric, IPv4 or IPv6) and `port`; 0 lets the system choose.
[[nodiscard]] Result<UniqueFd> listen_tcp(const std::string& host, std::uint16_t port);
/// Listens on a path, or on "@NAME" in the abstract namespace.
[[nodiscard]] Result<UniqueFd> listen_unix(const std::string& name);
/// The numeric host and the port that a TCP socket is bound to.
[[nodiscard]] Result<std::pair<std::string, std::uint16_t>> bound_endpoint(int fd);

/// A connection that is complete or under way: it becomes writable, and connection_error() then
/// tells whether it failed. An invalid descriptor: the other side's queue is full, try again soon.
/// kPeerLost: nobody listens there.
[[nodiscard]] Result<UniqueFd> start_connect_tcp(const std::string& host, std::uint16_t port);
[[nodiscard]] Result<UniqueFd> start_connect_unix(const std::string& name);
/// 0, or the errno with which a connection under way has failed.
[[nodiscard]] int connection_error(int fd);

/// The next waiting connection of a listening socket, or an invalid descriptor.
[[nodiscard]] UniqueFd accept_one(int listener);

/// Turns off delays for small TCP messages and sizes the buffers; harmless on Unix sockets.
void tune_stream(int fd);

/// Bytes moved, 0 if the call would have blocked.
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
/// Keeps a descriptor that came along in `descriptor`.
[[nodiscard]] Moved receive_with_descriptor(int fd, std::span<std::byte> into,
                                            UniqueFd& descriptor);
/// True if the other side has closed and nothing is left to read.
[[nodiscard]] bool at_end(int fd);

/// True if the other host leaves one transmission after the other unanswered: packets are lost on
/// the way, or the host is gone. A program that merely does not read is not meant, its host answers
/// for it. On a fast network this takes about 1.5 s of silence, 3 s for a connection under way. TCP
/// only; false for other sockets.
[[nodiscard]] bool is_unreachable(int fd);
/// Lets the system ask once a second whether the other host is there, while nothing else travels.
/// Then is_unreachable() is also true for who only waits, after 3 s of silence. TCP only; harmless
/// on other sockets.
void ask_while_idle(int fd);
/// How often to ask is_unreachable() while waiting.
inline constexpr Duration kReachInterval = milliseconds(250);

/// Milliseconds for poll() until `deadline`, rounded up; 0 if it has passed.
[[nodiscard]] int poll_timeout_ms(Instant deadline);

}  // namespace mayfly::collectives
