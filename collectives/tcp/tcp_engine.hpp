#pragma once

// The engine of a tcp group: moves bytes while there are any, spins for a moment, then sleeps until
// a channel is ready or the group is aborted.

#include <memory>
#include <vector>

#include "base/net/wake_up.hpp"
#include "collectives/group_engine.hpp"
#include "collectives/tcp/exchange.hpp"

namespace mayfly::collectives {

/// The connections of a new group: in a mesh to every member, otherwise to the two neighbours in
/// the ring.
struct TcpConnections {
  std::vector<TcpPeer> peers;  ///< by rank
  std::size_t rank = 0;        ///< of this member
  bool is_mesh = false;
  /// Members of the group on this host, this one included.
  std::size_t local_members = 1;
};

/// All-reduces go directly between all members of a mesh, everything else along the ring.
class TcpEngine : public GroupEngine {
 public:
  /// The group's members on this host outnumber the cores that this process may use. Members may
  /// differ in this, so it decides nothing by itself.
  [[nodiscard]] virtual bool finds_host_crowded() const = 0;
  /// From now on small all-reduces use the algorithm with the fewest messages. To be called with
  /// the same value on all members, between the same operations; false at first.
  virtual void spare_messages(bool spare) = 0;
};

/// `signal` is shared with the thread that formed the connections.
[[nodiscard]] std::unique_ptr<TcpEngine> make_tcp_engine(TcpConnections connections,
                                                         std::shared_ptr<AbortSignal> signal);

}  // namespace mayfly::collectives
