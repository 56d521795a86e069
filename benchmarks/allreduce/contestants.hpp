#pragma once

// The contestants of `mayfly bench allreduce`, and how their processes are started.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace mayfly::bench {

/// Mayfly's transports in the benchmark: tcp, unix, gloo, mpi (over shared memory), mpi-tcp.
[[nodiscard]] const std::vector<std::string>& bench_backends();
/// The peers: gloo (its own all-reduce), mpi-tcp, mpi-shm, mpi-copy (shared memory without
/// process_vm_readv), poll (a ring over TCP and poll).
[[nodiscard]] const std::vector<std::string>& bench_peers();

/// How the ranks of one contestant are started.
struct Contestant {
  std::string name;     ///< "mayfly-tcp", or the peer's name
  std::string library;  ///< as the user named it: "tcp"
  bool is_peer = false;
  bool launcher = false;  ///< `command` starts all ranks at once
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;
};

/// `program` is this program; peers are in the same folder. kUnsupported names a missing program.
[[nodiscard]] Result<Contestant> find_contestant(const std::string& library, bool is_peer,
                                                 std::uint32_t ranks, const std::string& program);

}  // namespace mayfly::bench
