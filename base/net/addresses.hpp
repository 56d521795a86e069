#pragma once

// Names and addresses of hosts: endpoints as text, look-up of names, and the addresses of this
// host. Any thread; a look-up of a name may wait for a name server.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

struct addrinfo;
struct sockaddr;

namespace mayfly {

inline constexpr const char* kLoopbackHost = "127.0.0.1";

struct Endpoint {
  std::string host;  ///< name or address, without brackets
  std::uint16_t port = 0;
};

/// Parses "host:port" or "[v6-address]:port"; kInvalidInput with the text otherwise.
[[nodiscard]] Result<Endpoint> parse_endpoint(const std::string& text);
[[nodiscard]] std::string to_string(const Endpoint& endpoint);
/// The numeric endpoint in a socket address of any length; an empty host if there is none.
[[nodiscard]] Endpoint endpoint_of(const sockaddr* address);

struct FreeAddresses {
  void operator()(addrinfo* list) const;
};
/// The list that getaddrinfo() returned; freed with its owner. Never empty.
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;
/// The socket addresses of `endpoint` for streams. `flags`: those of getaddrinfo(), AI_*. kIo with
/// the reason if it cannot be resolved.
[[nodiscard]] Result<AddressList> resolve(const Endpoint& endpoint, int flags);
/// The numeric addresses of `host` in the system's order, each once; kIo as above.
[[nodiscard]] Result<std::vector<std::string>> resolve_host(const std::string& host, int flags = 0);

/// The name of this host in its own configuration; "localhost" if it has none.
[[nodiscard]] std::string host_name();

/// True for 127.0.0.0/8 and ::1, as numbers.
[[nodiscard]] bool is_loopback(const std::string& address);
/// True for 0.0.0.0 and ::, as numbers in any notation: addresses to listen on, not to connect to.
[[nodiscard]] bool is_wildcard(const std::string& address);
/// True for a numeric IPv4 or IPv6 address.
[[nodiscard]] bool is_numeric_address(const std::string& host);

/// The numeric addresses of all network interfaces that are up, IPv4 first; without loopback and
/// link-local addresses.
[[nodiscard]] std::vector<std::string> own_addresses();

/// The numeric address of the network interface `name`: IPv4 if it has one, else an IPv6 address
/// that is not link-local, else an empty text. Nothing if there is no interface of that name.
[[nodiscard]] std::optional<std::string> address_of_interface(const std::string& name);
/// The reverse: the name of the network interface that has `host`, an address or a name of this
/// host. Empty if there is none.
[[nodiscard]] std::string interface_of(const std::string& host);

/// The address of the default route's interface, else the first of own_addresses(), else 127.0.0.1:
/// the address at which other hosts most likely reach this host.
[[nodiscard]] std::string default_address();

/// The address that this host's end of a connection to one of the coordinators would have: the
/// first that is not loopback. For a name that resolves to a loopback address, the coordinator is
/// assumed to be on this host, so the result is default_address(); for a numeric loopback address
/// and `localhost` it is a loopback address. No packet is sent to the coordinators, but names are
/// resolved. Names that cannot be resolved are left out; 127.0.0.1 if none is left.
[[nodiscard]] std::string address_towards(const std::vector<Endpoint>& coordinators);

/// The numeric addresses to try for a connection to `host`: those that it resolves to. If all of
/// them are loopback although `host` is the name of a machine (Debian gives a host's own name the
/// address 127.0.1.1), also this host's other addresses. kIo if it cannot be resolved.
[[nodiscard]] Result<std::vector<std::string>> addresses_of(const std::string& host);

}  // namespace mayfly
