#include "elastic/net/own_addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/address_list.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::elastic {
namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};
constexpr const char* kLoopback = "127.0.0.1";

std::string numeric(const sockaddr* address) {
  const socklen_t length =
      address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char host[NI_MAXHOST] = {};
  const int failed = ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? host : "";
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_number(const std::string& host) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

/// What the system would put as the sender of a packet to `to`; nothing if it has no way there.
std::optional<std::string> sender_towards(const std::string& to) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* raw = nullptr;
  if (::getaddrinfo(to.c_str(), "9", &hints, &raw) != 0) {
    return std::nullopt;
  }
  const AddressList found(raw);
  const UniqueFd fd(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  // A datagram socket only looks up the route.
  if (!fd.valid() || ::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return std::nullopt;
  }
  return numeric(reinterpret_cast<const sockaddr*>(&own));
}

}  // namespace

std::vector<std::string> own_addresses() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(raw);
  std::vector<std::string> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
      const bool is_usable = entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == family &&
                             (entry->ifa_flags & IFF_UP) != 0 && !is_link_local(entry->ifa_addr);
      const std::string address = is_usable ? numeric(entry->ifa_addr) : "";
      if (!address.empty() && !is_loopback(address)) {
        found.push_back(address);
      }
    }
  }
  return found;
}

std::string default_address() {
  // RFC 5737 and RFC 3849: nobody's addresses, so only the default route leads there.
  for (const char* nobody : {"192.0.2.1", "2001:db8::1"}) {
    const std::optional<std::string> sender = sender_towards(nobody);
    if (sender && !sender->empty() && !is_loopback(*sender)) {
      return *sender;
    }
  }
  const std::vector<std::string> own = own_addresses();
  return own.empty() ? kLoopback : own.front();
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
  return is_this_host ? default_address() : loopback.value_or(kLoopback);
}

bool is_loopback(const std::string& address) {
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6{};
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

Result<std::vector<std::string>> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &raw); failed != 0) {
    return Error{Errc::kIo, "cannot resolve " + host + ": " + ::gai_strerror(failed)};
  }
  const std::unique_ptr<addrinfo, FreeAddresses> list(raw);
  std::vector<std::string> found;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    const std::string address = numeric(each->ai_addr);
    if (std::find(found.begin(), found.end(), address) == found.end()) {
      found.push_back(address);
    }
  }
  const bool names_a_host = !is_number(host) && host != "localhost";
  if (names_a_host && std::all_of(found.begin(), found.end(), is_loopback)) {
    for (const std::string& own : own_addresses()) {
      found.push_back(own);
    }
  }
  return found;
}

}  // namespace mayfly::elastic
