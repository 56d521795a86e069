#include "collectives/tcp/sockets.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/address_list.hpp"

namespace mayfly::collectives {
namespace {

constexpr int kBacklog = 1024;
// Enough to keep the other side busy for a scheduler tick, small enough to stay in cache.
constexpr int kSocketBufferBytes = 512 * 1024;
// Transmissions of the same bytes that no answer came to. The pauses between them double, from
// 200 ms (1 s before the connection stands), so that a single lost packet is never mistaken.
constexpr int kUnansweredMax = 3;
constexpr int kUnansweredMaxConnecting = 2;
constexpr int kIdleQuestionSeconds = 1;  // the least that the system can do

Error system_error(const std::string& what, int number) {
  return {Errc::kIo, fmt::format("{}: {}", what, std::strerror(number))};
}

Result<AddressList> resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failed != 0) {
    return Error{Errc::kIo, fmt::format("cannot resolve {}: {}", host, ::gai_strerror(failed))};
  }
  return AddressList(list);
}

UniqueFd make_socket(int family) {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
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
  return Error{Errc::kPeerLost,
               fmt::format("cannot connect to {}: {}", name, std::strerror(errno))};
}

Moved moved(ssize_t result) {
  if (result > 0) {
    return {.bytes = static_cast<std::size_t>(result)};
  }
  const bool would_block = result < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS);
  return {.closed = !would_block};
}

}  // namespace

Result<UniqueFd> listen_tcp(const std::string& host, std::uint16_t port) {
  Result<AddressList> list = resolve(host, port, AI_PASSIVE);
  if (!list.ok()) {
    return list.error();
  }
  const addrinfo& first = *list.value();
  UniqueFd fd = make_socket(first.ai_family);
  const int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  return listening(std::move(fd), first.ai_addr, first.ai_addrlen,
                   fmt::format("{}:{}", host, port));
}

Result<UniqueFd> listen_unix(const std::string& name) {
  Result<UnixName> parsed = unix_name(name);
  if (!parsed.ok()) {
    return parsed.error();
  }
  return listening(make_socket(AF_UNIX), reinterpret_cast<sockaddr*>(&parsed.value().address),
                   parsed.value().length, name);
}

Result<std::pair<std::string, std::uint16_t>> bound_endpoint(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(fd, address, &length) != 0 ||
      ::getnameinfo(address, length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return system_error("cannot tell the address of a socket", errno);
  }
  return std::pair(std::string(host.data()), static_cast<std::uint16_t>(std::stoi(port.data())));
}

Result<UniqueFd> start_connect_tcp(const std::string& host, std::uint16_t port) {
  // Published addresses are numeric; a name would make the connecting thread wait for a server.
  Result<AddressList> list = resolve(host, port, AI_NUMERICHOST | AI_NUMERICSERV);
  if (!list.ok()) {
    return list.error();
  }
  const addrinfo& first = *list.value();
  return connecting(make_socket(first.ai_family), first.ai_addr, first.ai_addrlen,
                    fmt::format("{}:{}", host, port));
}

Result<UniqueFd> start_connect_unix(const std::string& name) {
  Result<UnixName> parsed = unix_name(name);
  if (!parsed.ok()) {
    return parsed.error();
  }
  return connecting(make_socket(AF_UNIX), reinterpret_cast<sockaddr*>(&parsed.value().address),
                    parsed.value().length, name);
}

int connection_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

UniqueFd accept_one(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) {
    tune_stream(fd.get());
  }
  return fd;
}

void tune_stream(int fd) {
  int domain = AF_UNSPEC;
  socklen_t length = sizeof domain;
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length);
  if (domain == AF_UNIX) {
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
    return;
  }
  const int one = 1;  // buffers stay as they are: the kernel tunes them to the path
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
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
  // Not control.size(): its padding would take a second descriptor, which nobody would close.
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

void ask_while_idle(int fd) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleQuestionSeconds, sizeof kIdleQuestionSeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kIdleQuestionSeconds, sizeof kIdleQuestionSeconds);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

int poll_timeout_ms(Instant deadline) {
  constexpr std::int64_t kHourMs = 3'600'000;
  const std::int64_t left_ns = (deadline - monotonic_now()).count();
  const std::int64_t left_ms = left_ns / 1'000'000 + (left_ns % 1'000'000 > 0 ? 1 : 0);
  return static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, kHourMs));
}

}  // namespace mayfly::collectives
