#include "engine/run/network_interface.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "base/address_list.hpp"
#include "elastic/net/own_addresses.hpp"
#include "elastic/net/sockets.hpp"

namespace mayfly::engine {
namespace {

struct AddressListDeleter {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

// Link-local addresses mean nothing without their interface, on which others would not agree.
bool is_usable(const sockaddr* address) {
  if (address == nullptr) {
    return false;
  }
  if (address->sa_family == AF_INET6) {
    return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return address->sa_family == AF_INET;
}

std::string numeric(const sockaddr* address) {
  const socklen_t length =
      address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> host{};
  const int failed =
      ::getnameinfo(address, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? host.data() : "";
}

std::string without_brackets(const std::string& host) {
  const bool has_both = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has_both ? host.substr(1, host.size() - 2) : host;
}

bool stands_for_all(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr == INADDR_ANY;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

Result<void> check_reachable_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* raw = nullptr;
  if (::getaddrinfo(without_brackets(host).c_str(), nullptr, &hints, &raw) != 0) {
    return {};  // a name; whoever listens on it finds out
  }
  const AddressList found(raw);
  if (stands_for_all(found->ai_addr)) {
    return Error{Errc::kInvalidInput,
                 fmt::format("--bind-host {}: others must be told one address at which they reach "
                             "this process; name one of this machine, or a network interface, or "
                             "leave --bind-host out",
                             host)};
  }
  return {};
}

Result<std::string> coordinator_host(const JobConfig& config) {
  return config.bind_host == kAutoHost ? Result<std::string>(elastic::default_address())
                                       : listening_host(config.bind_host);
}

std::string advertised_host(const std::string& host) {
  return check_reachable_host(host).ok() ? host : elastic::default_address();
}

std::string worker_host(const JobConfig& config) {
  if (config.bind_host != kAutoHost) {
    return config.bind_host;
  }
  std::vector<elastic::Endpoint> coordinators;
  for (const std::string& text : coordinator_endpoints(config)) {
    if (Result<elastic::Endpoint> endpoint = elastic::parse_endpoint(text); endpoint.ok()) {
      coordinators.push_back(std::move(endpoint).value());
    }
  }
  return elastic::address_towards(coordinators);
}

Result<std::string> listening_host(const std::string& host) {
  if (host == kAutoHost) {
    return std::string(kLoopback);
  }
  if (::if_nametoindex(host.c_str()) == 0) {
    return without_brackets(host);
  }
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    return Error{Errc::kIo, "the system does not tell the addresses of its interfaces"};
  }
  const std::unique_ptr<ifaddrs, AddressListDeleter> list(raw);
  std::string found;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (host != entry->ifa_name || !is_usable(entry->ifa_addr)) {
      continue;
    }
    if (entry->ifa_addr->sa_family == AF_INET) {
      return numeric(entry->ifa_addr);
    }
    if (found.empty()) {
      found = numeric(entry->ifa_addr);
    }
  }
  if (found.empty()) {
    return Error{Errc::kNotFound,
                 fmt::format("--bind-host {}: this network interface has no address that other "
                             "machines could use; name another one, or an address",
                             host)};
  }
  return found;
}

}  // namespace mayfly::engine
