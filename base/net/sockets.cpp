#include "base/net/sockets.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/system_error.hpp"
#include "base/try_assign.hpp"

namespace mayfly {
namespace {

constexpr int kBacklog = 1024;
// Enough to keep the other side busy for a scheduler tick, small enough to stay in cache.
constexpr int kSocketBufferBytes = 512 * 1024;
// Over TCP within a host the kernel buffers several megabytes, and then each byte is copied out of
// a cold cache, which takes twice as long. With 512 KiB that begins to happen.
constexpr int kLocalTcpBufferBytes = 128 * 1024;
// Transmissions of the same bytes without an answer. The pauses between them double, from 200 ms (1
// s before the connection is established), so that a single lost packet does not count.
constexpr int kUnansweredMax = 3;
constexpr int kUnansweredMaxConnecting = 2;
constexpr int kIdleQuestionSeconds = 1;  // the shortest interval that the system supports

UniqueFd make_socket(int family) {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

struct UnixName {
  sockaddr_un address{};
  socklen_t length = 0;
};

Result<UnixName> unix_name(const std::string& name) {
  UnixName out;
  out.address.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof out.address.sun_path) {
    return Error{Errc::kInvalidInput, fmt::format("bad Unix socket name \"{}\"", name)};
  }
  std::memcpy(out.address.sun_path, name.data(), name.size());
  const bool is_abstract = name.front() == '@';
  if (is_abstract) {
    out.address.sun_path[0] = '\0';
  }
  out.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (is_abstract ? 0 : 1));
  return out;
}

Result<UniqueFd> listening(UniqueFd fd, const sockaddr* address, socklen_t length,
                           const std::string& name) {
  if (!fd.valid() || ::bind(fd.get(), address, length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return system_error("cannot listen on " + name, errno);
  }
  return fd;
}

/// True if the error shows that no process listens: the other host, or for a local name this host,
/// has reported it.
bool is_refused(int error) {
  return error == ECONNREFUSED || error == ENOENT;
}

Result<UniqueFd> connecting(UniqueFd fd, const sockaddr* address, socklen_t length,
                            const std::string& name) {
  if (!fd.valid()) {
    return system_error("cannot open a socket", errno);
  }
  if (::connect(fd.get(), address, length) == 0 || errno == EINPROGRESS) {
    tune_stream(fd.get());
    return fd;
  }
  if (errno == EAGAIN || errno == EINTR) {
    return UniqueFd();
  }
  const int error = errno;
  return system_error("cannot connect to " + name, error,
                      is_refused(error) ? Errc::kPeerLost : Errc::kUnreachable);
}

/// Waits until the socket can be read or written.
Result<void> wait_for(int fd, short events, Instant deadline) {
  while (true) {
    const int left_ms = poll_timeout_ms(deadline);
    if (left_ms == 0) {
      return Error{Errc::kDeadline, "no answer in time"};
    }
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, left_ms);
    if (ready > 0) {
      return {};
    }
    if (ready < 0 && errno != EINTR) {
      return system_error("poll", errno);
    }
  }
}

Result<UniqueFd> connect_address(const addrinfo& address, const std::string& name,
                                 Instant deadline) {
  Result<UniqueFd> fd =
      connecting(make_socket(address.ai_family), address.ai_addr, address.ai_addrlen, name);
  if (!fd.ok()) {  // kPeerLost: the caller tries again until its deadline
    const bool is_unreachable = fd.error().code == Errc::kUnreachable;
    return Error{is_unreachable ? Errc::kPeerLost : fd.error().code, fd.error().detail};
  }
  if (!fd.value().valid()) {
    return Error{Errc::kPeerLost, "cannot connect to " + name + ": no port is left"};
  }
  const int raw = fd.value().get();
  if (const Result<void> ready = wait_for(raw, POLLOUT, deadline); !ready.ok()) {
    return Error{ready.error().code, "cannot connect to " + name + ": " + ready.error().detail};
  }
  if (const int failure = connection_error(raw); failure != 0) {
    return system_error("cannot connect to " + name, failure, Errc::kPeerLost);
  }
  return fd;
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);

Endpoint end_of(int fd, NameCall name) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  return name(fd, address, &length) == 0 ? endpoint_of(address) : Endpoint{};
}

Moved moved(ssize_t result) {
  if (result > 0) {
    return {.bytes = static_cast<std::size_t>(result)};
  }
  const bool would_block = result < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS);
  return {.closed = !would_block};
}

}  // namespace

Result<UniqueFd> listen_tcp(const Endpoint& endpoint) {
  TRY_ASSIGN(const AddressList list, resolve(endpoint, AI_PASSIVE));
  const addrinfo& first = *list;
  UniqueFd fd = make_socket(first.ai_family);
  // A restarted coordinator must get its port back while old connections are in TIME_WAIT.
  if (fd.valid()) {  // otherwise errno says why not
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  }
  return listening(std::move(fd), first.ai_addr, first.ai_addrlen, to_string(endpoint));
}

Result<UniqueFd> listen_unix(const std::string& name) {
  TRY_ASSIGN(const UnixName parsed, unix_name(name));
  return listening(make_socket(AF_UNIX), reinterpret_cast<const sockaddr*>(&parsed.address),
                   parsed.length, name);
}

Endpoint bound_endpoint(int fd) {
  return end_of(fd, ::getsockname);
}

Endpoint peer_endpoint(int fd) {
  return end_of(fd, ::getpeername);
}

UniqueFd accept_one(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) {
    tune_stream(fd.get());
  }
  return fd;
}

Result<UniqueFd> start_connect_tcp(const Endpoint& endpoint) {
  TRY_ASSIGN(const AddressList list, resolve(endpoint, AI_NUMERICHOST));
  const addrinfo& first = *list;
  return connecting(make_socket(first.ai_family), first.ai_addr, first.ai_addrlen,
                    to_string(endpoint));
}

Result<UniqueFd> start_connect_unix(const std::string& name) {
  TRY_ASSIGN(const UnixName parsed, unix_name(name));
  return connecting(make_socket(AF_UNIX), reinterpret_cast<const sockaddr*>(&parsed.address),
                    parsed.length, name);
}

int connection_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

Result<UniqueFd> connect_tcp(const Endpoint& endpoint, Instant deadline) {
  TRY_ASSIGN(const std::vector<std::string> all, addresses_of(endpoint.host));
  std::string name = to_string(endpoint);
  if (all != std::vector{endpoint.host}) {
    name += fmt::format(" ({})", fmt::join(all, ", "));
  }
  Result<UniqueFd> last = Error{Errc::kIo, "no address for " + name};
  for (std::size_t i = 0; i < all.size() && !last.ok(); ++i) {
    TRY_ASSIGN(const AddressList address, resolve({all[i], endpoint.port}, AI_NUMERICHOST));
    // One that does not answer leaves time for the others.
    const Instant now = monotonic_now();
    const Duration share = (deadline - now) / static_cast<std::int64_t>(all.size() - i);
    last = connect_address(*address, name, now + share);
  }
  return last;
}

void tune_stream(int fd) {
  int domain = AF_UNSPEC;
  socklen_t length = sizeof domain;
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length);
  if (domain == AF_UNIX) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, kSocketBufferBytes);
    return;
  }
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  const std::string peer = peer_endpoint(fd).host;
  if (!peer.empty() && peer == bound_endpoint(fd).host) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, kLocalTcpBufferBytes);
  }  // otherwise it stays as it is: the kernel adapts it to the path
}

Result<void> send_exactly(int fd, ByteSpan bytes, Instant deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      TRY(wait_for(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return system_error("the connection broke", errno, Errc::kPeerLost);
    }
  }
  return {};
}

Result<void> receive_exactly(int fd, std::span<std::byte> target, Instant deadline) {
  while (!target.empty()) {
    const ssize_t n = ::recv(fd, target.data(), target.size(), 0);
    if (n > 0) {
      target = target.subspan(static_cast<std::size_t>(n));
    } else if (n == 0) {
      return Error{Errc::kPeerLost, "the connection was closed"};
    } else if (errno == EAGAIN) {
      TRY(wait_for(fd, POLLIN, deadline));
    } else if (errno != EINTR) {
      return system_error("the connection broke", errno, Errc::kPeerLost);
    }
  }
  return {};
}

Moved send_some(int fd, const void* data, std::size_t bytes, bool more) {
  const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
  return moved(::send(fd, data, bytes, flags));
}

Moved receive_some(int fd, void* data, std::size_t bytes) {
  return moved(::recv(fd, data, bytes, MSG_DONTWAIT));
}

void attach_descriptor(msghdr& message, std::span<char> control, int descriptor) {
  if (descriptor < 0) {
    return;
  }
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
}

Moved send_with_descriptor(int fd, ByteSpan data, int descriptor) {
  iovec bytes{.iov_base = const_cast<std::byte*>(data.data()), .iov_len = data.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  attach_descriptor(message, control, descriptor);
  return moved(::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

Moved receive_with_descriptor(int fd, std::span<std::byte> into, UniqueFd& descriptor) {
  iovec bytes{.iov_base = into.data(), .iov_len = into.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  // Not control.size(): its padding would take a second descriptor, which would never be closed.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const Moved got = moved(::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
  const cmsghdr* const header = got.bytes > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof received);
    descriptor = UniqueFd(received);
  }
  return got;
}

bool at_end(int fd) {
  char byte = 0;
  const ssize_t peeked = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return peeked == 0 || (peeked < 0 && errno != EAGAIN && errno != EINTR);
}

bool is_unreachable(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
    return false;
  }
  const bool connecting = info.tcpi_state == TCP_SYN_SENT;
  return info.tcpi_retransmits >= (connecting ? kUnansweredMaxConnecting : kUnansweredMax) ||
         info.tcpi_probes >= kUnansweredMax;
}

void limit_unanswered(int fd, Duration most) {
  using Milliseconds = std::chrono::duration<int, std::milli>;
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
             std::chrono::duration_cast<Milliseconds>(most).count());
}

void ask_while_idle(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleQuestionSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kIdleQuestionSeconds);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

int poll_timeout_ms(Instant deadline) {
  constexpr std::int64_t kHourMs = 3'600'000;
  const std::int64_t left_ns = (deadline - monotonic_now()).count();
  const std::int64_t left_ms = left_ns / 1'000'000 + (left_ns % 1'000'000 > 0 ? 1 : 0);
  return static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, kHourMs));
}

}  // namespace mayfly
