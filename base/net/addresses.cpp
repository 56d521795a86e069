#include "base/net/addresses.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {
namespace {

struct InterfaceAddress {
  std::string interface;
  std::string address;
  bool is_up = false;
};

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

// Link-local addresses are valid only with their interface, whose name differs between hosts.
bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

/// IPv4 addresses first, without link-local ones.
std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(raw);
  std::vector<InterfaceAddress> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == family &&
          !is_link_local(entry->ifa_addr)) {
        found.push_back(
            {entry->ifa_name, endpoint_of(entry->ifa_addr).host, (entry->ifa_flags & IFF_UP) != 0});
      }
    }
  }
  return found;
}

/// The numeric source address that the system would use for a packet to `to`; nothing if it has no
/// route to it.
std::optional<std::string> sender_towards(const std::string& to) {
  constexpr std::uint16_t kAnyPort = 9;
  const Result<AddressList> found = resolve({to, kAnyPort}, AI_NUMERICHOST);
  if (!found.ok()) {
    return std::nullopt;
  }
  const addrinfo& target = *found.value();
  const UniqueFd fd(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  // connect() on a datagram socket only looks up the route.
  if (!fd.valid() || ::connect(fd.get(), target.ai_addr, target.ai_addrlen) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return std::nullopt;
  }
  return endpoint_of(reinterpret_cast<const sockaddr*>(&own)).host;
}

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const Error wrong{Errc::kInvalidInput, "'" + text + "' is not HOST:PORT"};
  if (colon == std::string::npos || colon == 0) {
    return wrong;
  }
  const auto port = number_in<std::uint16_t>(std::string_view(text).substr(colon + 1));
  if (!port) {
    return wrong;
  }
  Endpoint endpoint{text.substr(0, colon), *port};
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (endpoint.host.find(':') != std::string::npos) {
    return wrong;
  }
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
               : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

Endpoint endpoint_of(const sockaddr* address) {
  const bool is_v4 = address->sa_family == AF_INET;
  if (!is_v4 && address->sa_family != AF_INET6) {
    return {};
  }
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(address, is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), host.data(),
                    host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return {host.data(), ntohs(is_v4 ? reinterpret_cast<const sockaddr_in*>(address)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(address)->sin6_port)};
}

void FreeAddresses::operator()(addrinfo* list) const {
  ::freeaddrinfo(list);
}

Result<AddressList> resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int failed = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (failed != 0) {
    return Error{Errc::kIo,
                 fmt::format("cannot resolve {}: {}", endpoint.host, ::gai_strerror(failed))};
  }
  return AddressList(list);
}

Result<std::vector<std::string>> resolve_host(const std::string& host, int flags) {
  TRY_ASSIGN(const AddressList list, resolve({host, 0}, flags));
  std::vector<std::string> found;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    std::string address = endpoint_of(each->ai_addr).host;
    if (std::find(found.begin(), found.end(), address) == found.end()) {
      found.push_back(std::move(address));
    }
  }
  return found;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data()
                                                                             : "localhost";
}

bool is_loopback(const std::string& address) {
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6{};
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool is_wildcard(const std::string& address) {
  const Result<AddressList> found = resolve({address, 0}, AI_NUMERICHOST);
  if (!found.ok()) {
    return false;
  }
  const std::string host = endpoint_of(found.value()->ai_addr).host;
  return host == "0.0.0.0" || host == "::";
}

bool is_numeric_address(const std::string& host) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  for (InterfaceAddress& each : interface_addresses()) {
    if (each.is_up && !is_loopback(each.address)) {
      found.push_back(std::move(each.address));
    }
  }
  return found;
}

std::optional<std::string> address_of_interface(const std::string& name) {
  if (::if_nametoindex(name.c_str()) == 0) {
    return std::nullopt;
  }
  for (const InterfaceAddress& each : interface_addresses()) {
    if (each.interface == name) {
      return each.address;
    }
  }
  return std::string();
}

std::string interface_of(const std::string& host) {
  const Result<std::vector<std::string>> addresses = resolve_host(host);
  if (addresses.ok()) {
    for (const InterfaceAddress& each : interface_addresses()) {
      if (std::ranges::count(addresses.value(), each.address) > 0) {
        return each.interface.substr(0, each.interface.find(':'));  // "eth0:1" is one of its labels
      }
    }
  }
  return {};
}

std::string default_address() {
  // RFC 5737 and RFC 3849: addresses of no host, so only the default route leads there.
  for (const char* nobody : {"192.0.2.1", "2001:db8::1"}) {
    const std::optional<std::string> sender = sender_towards(nobody);
    if (sender && !sender->empty() && !is_loopback(*sender)) {
      return *sender;
    }
  }
  const std::vector<std::string> own = own_addresses();
  return own.empty() ? kLoopbackHost : own.front();
}

std::string address_towards(const std::vector<Endpoint>& coordinators) {
  std::optional<std::string> loopback;
  bool is_this_host = false;
  for (const Endpoint& each : coordinators) {
    const Result<std::vector<std::string>> addresses = addresses_of(each.host);
    for (const std::string& address :
         addresses.ok() ? addresses.value() : std::vector<std::string>()) {
      const std::optional<std::string> sender = sender_towards(address);
      if (!sender || sender->empty()) {
        continue;
      }
      if (!is_loopback(*sender)) {
        const bool is_own = is_loopback(addresses.value().front());
        is_this_host = is_this_host || is_own;
        if (!is_own) {
          return *sender;
        }
      } else if (!loopback) {
        loopback = sender;
      }
    }
  }
  return is_this_host ? default_address() : loopback.value_or(kLoopbackHost);
}

Result<std::vector<std::string>> addresses_of(const std::string& host) {
  Result<std::vector<std::string>> found = resolve_host(host);
  const bool names_a_host = !is_numeric_address(host) && host != "localhost";
  if (found.ok() && names_a_host && std::ranges::all_of(found.value(), is_loopback)) {
    std::ranges::copy(own_addresses(), std::back_inserter(found.value()));
  }
  return found;
}

}  // namespace mayfly
