#pragma once

// Connects one member to the others of a view: to all of them in a small view (a mesh), else to its
// two neighbours in the ring.

#include <memory>
#include <string>

#include "collectives/abort_signal.hpp"
#include "collectives/group.hpp"
#include "collectives/tcp/pending_connections.hpp"
#include "collectives/tcp/tcp_address.hpp"
#include "collectives/tcp/tcp_link.hpp"

namespace mayfly::collectives {

/// What a transport has for every formation.
struct TcpDoor {
  std::unique_ptr<PendingConnections> room;  ///< a neighbour may be ahead of us
  std::string host_id;                       ///< of this host
  bool share_memory = true;                  ///< with members of this host
  std::size_t mesh_members_max = 16;
};

/// Of each pair of members one connects and the other waits for it, evenly spread. Fails with
/// kPeerLost or kDeadline (naming the member), kRefused, kInvalidInput (an address that is none) or
/// kAborted.
[[nodiscard]] Result<TcpConnections> connect_members(const GroupSpec& spec, TcpDoor& door,
                                                     const AbortSignal& signal, Instant deadline);

}  // namespace mayfly::collectives
