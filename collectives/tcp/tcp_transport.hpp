#pragma once

// Groups over plain sockets and shared memory. In views of up to 16 members all members are
// connected to each other, and all-reduces take one or two steps; larger views, and the other
// operations, use a ring. Members of one host exchange their bytes through shared memory, others
// over TCP. No store is needed.

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/group.hpp"
#include "collectives/group_engine.hpp"

namespace mayfly::collectives {

struct TcpOptions {
  /// Interface to listen on (name or address). A wildcard needs `advertise_host`.
  std::string bind_host = "127.0.0.1";
  std::uint16_t port = 0;        ///< 0: the system chooses
  std::string advertise_host{};  ///< what others connect to, numeric; empty: the bound address
  std::string unix_dir{};        ///< folder for the Unix-domain socket; empty: abstract namespace
  bool use_unix = true;          ///< false: TCP between members of one host too
  bool share_memory = true;      ///< false: Unix-domain sockets between members of one host
  /// Views of up to so many members are a mesh, larger ones a ring; the same on every member.
  std::size_t mesh_members_max = 16;
  /// How late this member's operations begin (experiments with stragglers); empty: not at all.
  DelaySource delay{};
};

/// Opens the listening sockets; fails with kIo (for example: port in use) or kInvalidInput.
/// The transport has no thread; peers that connect early wait in the system's queue.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options);

}  // namespace mayfly::collectives
