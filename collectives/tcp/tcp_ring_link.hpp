#pragma once

#include <memory>

#include "base/unique_fd.hpp"
#include "collectives/abort_signal.hpp"
#include "collectives/ring_link.hpp"

namespace mayfly::collectives {

/// Two stream sockets, each used in one direction only: `to_next` for sending, `from_previous` for
/// receiving. Owns both. `signal` is shared with whoever formed the link.
struct TcpLinkSockets {
  UniqueFd to_next;
  UniqueFd from_previous;
};
[[nodiscard]] std::unique_ptr<RingLink> make_tcp_ring_link(TcpLinkSockets sockets,
                                                           RingNeighbours neighbours,
                                                           std::shared_ptr<AbortSignal> signal);

}  // namespace mayfly::collectives
