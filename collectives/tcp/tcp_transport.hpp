#pragma once

// Groups over plain sockets and shared memory. In views of up to 16 members all members are
// connected to each other, and all-reduces take one or two steps; larger views, and the other
// operations, use a ring. Members of one host exchange their bytes through shared memory if the
// system allows it, others over TCP. No store is needed.

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/group.hpp"
#include "collectives/group_engine.hpp"

namespace mayfly::collectives {

struct TcpOptions {
  /// Interface to listen on (name or address), which others connect to; not a wildcard.
  std::string bind_host = "127.0.0.1";
  bool use_unix = true;      ///< false: TCP between members of one host too
  bool share_memory = true;  ///< false: Unix-domain sockets between members of one host
  /// Views of up to so many members are a mesh, larger ones a ring; the same on every member.
  std::size_t mesh_members_max = 16;
  /// The delay of this member's operations (experiments with stragglers); empty: none.
  DelaySource delay{};
};

/// Opens the listening sockets, on ports that the system chooses; fails with kIo or kInvalidInput.
/// Between two form() calls a thread, "pending", accepts peers that connect early.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options);

}  // namespace mayfly::collectives
