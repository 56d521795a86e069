#include "elastic/net/sockets.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/address_list.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/own_addresses.hpp"

namespace mayfly::elastic {
namespace {

Error os_error(Errc code, const std::string& what, int number) {
  return {code, what + ": " + std::strerror(number)};
}

Result<AddressList> resolve(const Endpoint& endpoint, bool to_listen) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int rc = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (rc != 0) {
    return Error{Errc::kIo, "cannot resolve " + endpoint.host + ": " + ::gai_strerror(rc)};
  }
  return AddressList(list);
}

UniqueFd open_socket(const addrinfo& address) {
  return UniqueFd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void set_option(int fd, int level, int name) {
  const int on = 1;
  ::setsockopt(fd, level, name, &on, sizeof(on));
}

/// Waits until the socket can be read or written.
Result<void> wait_for(int fd, short events, Instant deadline) {
  while (true) {
    const Duration left = deadline - monotonic_now();
    if (left <= Duration::zero()) {
      return Error{Errc::kDeadline, "no answer in time"};
    }
    // Rounded up, so that the last wait does not become a busy loop.
    const auto ms = std::min<std::int64_t>(left.count() / 1'000'000 + 1, 60'000);
    pollfd entry{fd, events, 0};
    const int rc = ::poll(&entry, 1, static_cast<int>(ms));
    if (rc > 0) {
      return {};
    }
    if (rc < 0 && errno != EINTR) {
      return os_error(Errc::kIo, "poll", errno);
    }
  }
}

Result<UniqueFd> connect_address(const addrinfo& address, const std::string& name,
                                 Instant deadline) {
  UniqueFd fd = open_socket(address);
  if (!fd.valid()) {
    return os_error(Errc::kIo, "cannot open a socket", errno);
  }
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  int failure = 0;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    failure = errno;
  }
  if (failure == EINPROGRESS) {
    if (Result<void> ready = wait_for(fd.get(), POLLOUT, deadline); !ready.ok()) {
      return Error{ready.error().code, "cannot connect to " + name + ": " + ready.error().detail};
    }
    socklen_t size = sizeof(failure);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
  }
  if (failure != 0) {
    return os_error(Errc::kPeerLost, "cannot connect to " + name, failure);
  }
  return fd;
}

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const Error wrong{Errc::kInvalidInput, "'" + text + "' is not HOST:PORT"};
  if (colon == std::string::npos || colon == 0) {
    return wrong;
  }
  Endpoint endpoint{text.substr(0, colon), 0};
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, endpoint.port);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return wrong;
  }
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (endpoint.host.find(':') != std::string::npos) {
    return wrong;
  }
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  const std::string port = std::to_string(endpoint.port);
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + port;
}

Result<UniqueFd> listen_tcp(const Endpoint& endpoint) {
  Result<AddressList> addresses = resolve(endpoint, true);
  if (!addresses.ok()) {
    return std::move(addresses).error();
  }
  const addrinfo& address = *addresses.value();
  UniqueFd fd = open_socket(address);
  if (fd.valid()) {
    // A restarted coordinator must get its port back while old connections are in TIME_WAIT.
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  }
  if (!fd.valid() || ::bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0 ||
      ::listen(fd.get(), 1024) != 0) {
    return os_error(Errc::kIo, "cannot listen on " + to_string(endpoint), errno);
  }
  return fd;
}

std::uint16_t local_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

UniqueFd accept_tcp(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid()) {
    set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  }
  return fd;
}

Result<UniqueFd> connect_tcp(const Endpoint& endpoint, Instant deadline) {
  const Result<std::vector<std::string>> hosts = addresses_of(endpoint.host);
  if (!hosts.ok()) {
    return hosts.error();
  }
  const std::vector<std::string>& all = hosts.value();
  std::string name = to_string(endpoint);
  for (std::size_t i = 0; i < all.size() && all != std::vector{endpoint.host}; ++i) {
    name += (i == 0 ? " (" : ", ") + all[i] + (i + 1 == all.size() ? ")" : "");
  }
  Result<UniqueFd> last = Error{Errc::kIo, "no address for " + name};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Result<AddressList> address = resolve({all[i], endpoint.port}, false);
    if (!address.ok()) {
      return address.error();
    }
    // One that does not answer leaves time for the others.
    const Instant now = monotonic_now();
    const Duration share = (deadline - now) / static_cast<std::int64_t>(all.size() - i);
    last = connect_address(*address.value(), name, now + share);
    if (last.ok()) {
      break;
    }
  }
  return last;
}

Result<void> send_exactly(int fd, ByteSpan bytes, Instant deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      TRY(wait_for(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return os_error(Errc::kPeerLost, "the connection broke", errno);
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
      return os_error(Errc::kPeerLost, "the connection broke", errno);
    }
  }
  return {};
}

Result<void> send_message(int fd, const Message& message, Instant deadline) {
  return send_exactly(fd, to_frame(message), deadline);
}

Result<Message> receive_message(int fd, Instant deadline) {
  std::uint32_t length = 0;
  const auto header = std::as_writable_bytes(std::span<std::uint32_t, 1>(&length, 1));
  TRY(receive_exactly(fd, header, deadline));
  if (length == 0 || length > kMessageBytesMax) {
    return Error{Errc::kCorrupt, "a frame of " + std::to_string(length) + " bytes"};
  }
  Bytes body(length);
  TRY(receive_exactly(fd, body, deadline));
  return decode(body);
}

}  // namespace mayfly::elastic
