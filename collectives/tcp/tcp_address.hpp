#pragma once

// Addresses of tcp transports as text. Any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace mayfly::collectives {

/// Where a tcp transport can be reached. As text: "tcp:HOST:PORT", with brackets around an IPv6
/// host, then ";unix:NAME;host:ID" if members on the same host can use a Unix-domain socket.
struct TcpAddress {
  std::string host;
  std::uint16_t port = 0;
  std::string unix_name;  ///< a path, or "@NAME" in the abstract namespace; empty: none
  std::string host_id;    ///< equal exactly if the two can reach each other's unix_name
};

[[nodiscard]] std::string to_string(const TcpAddress& address);
/// Fails with kInvalidInput and the text if it is not one. A field "images:" is skipped.
[[nodiscard]] Result<TcpAddress> parse_tcp_address(std::string_view text);

/// Identifies the running kernel and the network namespace, which is how far abstract Unix-domain
/// socket names reach. Empty if the system does not tell.
[[nodiscard]] std::string this_host_id();
/// The same from the system's answers: `boot` is random at each start of a kernel, and `network` is
/// the namespace's name. Empty if either is empty. Pure.
[[nodiscard]] std::string host_id_of(std::string_view boot, std::string_view network);

}  // namespace mayfly::collectives
