#pragma once

#include <memory>
#include <vector>

#include "collectives/abort_signal.hpp"
#include "collectives/ring_link.hpp"
#include "collectives/tcp/exchange.hpp"

namespace mayfly::collectives {

/// What a formation has connected: in a mesh every member, else the two neighbours in the ring.
struct TcpConnections {
  std::vector<TcpPeer> peers;  ///< by rank
  std::size_t rank = 0;        ///< our own
  bool is_mesh = false;
  /// Members of the group on this host, ourselves included.
  std::size_t local_members = 1;
};

/// All-reduces go directly between all members of a mesh, everything else along the ring.
/// `signal` is shared with whoever formed the link.
[[nodiscard]] std::unique_ptr<RingLink> make_tcp_link(TcpConnections connections,
                                                      std::shared_ptr<AbortSignal> signal);

}  // namespace mayfly::collectives
