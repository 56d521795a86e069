#pragma once

// Connects one member to its two neighbours in the ring of a view.

#include <memory>
#include <vector>

#include "collectives/abort_signal.hpp"
#include "collectives/group.hpp"
#include "collectives/tcp/tcp_address.hpp"
#include "collectives/tcp/tcp_handshake.hpp"
#include "collectives/tcp/tcp_ring_link.hpp"

namespace mayfly::collectives {

/// What a transport has for every formation: its listening sockets, and the connections that came
/// in before their view was formed here (a neighbour may be ahead of us).
struct TcpDoor {
  UniqueFd tcp;
  UniqueFd unix_domain;  ///< invalid: none
  std::string host_id;   ///< of this host
  std::vector<Incoming> waiting;
};

/// Connects to the next member and waits for the previous one. Fails with kPeerLost or kDeadline
/// (naming the neighbour), kRefused, kInvalidInput (an address that is none) or kAborted.
[[nodiscard]] Result<TcpLinkSockets> connect_ring(const GroupSpec& spec, TcpDoor& door,
                                                  const AbortSignal& signal, Instant deadline);

}  // namespace mayfly::collectives
