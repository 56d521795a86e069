#pragma once

// The addresses of this host, and which of them a connection would come from.

#include <string>
#include <vector>

#include "elastic/net/sockets.hpp"

namespace mayfly::elastic {

/// Numeric, of all network interfaces that are up, IPv4 first; without loopback and link-local
/// ones.
[[nodiscard]] std::vector<std::string> own_addresses();

/// Of the interface of the default route, else the first of own_addresses(), else 127.0.0.1. Where
/// others most likely reach this host.
[[nodiscard]] std::string default_address();

/// The address that this host's end of a connection to one of the coordinators would have: the
/// first that is not loopback. A name that means 127.0.0.1 or the like is taken for this host, so
/// its answer is default_address(); a numeric loopback address and `localhost` are answered with a
/// loopback address. Nothing is sent to anybody, but names are resolved. Those that cannot be
/// resolved are left out; 127.0.0.1 if none is left.
[[nodiscard]] std::string address_towards(const std::vector<Endpoint>& coordinators);

/// True for 127.0.0.0/8 and ::1, as numbers. Pure.
[[nodiscard]] bool is_loopback(const std::string& address);

/// Where to try to connect for `host`, as numbers: what it resolves to, and if that is all loopback
/// though `host` is the name of some machine (Debian gives a host's own name the address
/// 127.0.1.1), this host's other addresses, too. kIo if it cannot be resolved.
[[nodiscard]] Result<std::vector<std::string>> addresses_of(const std::string& host);

}  // namespace mayfly::elastic
