#pragma once

// Keeps the TCP connections of this process open beyond its death.
//
// Open MPI 4.1 does not outlive a connection that breaks: what it does with messages under way can
// end the process, or keep it busy for ever. If the connections of a dead rank stay open, its peers
// see nothing worse than a rank that does not answer, and that they can leave alone.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <set>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::collectives {

/// A child process that holds copies of sockets until this process's parent (mpirun, or its daemon
/// on this machine) ends. One thread at a time.
class FdHolder {
 public:
  /// Forks; call it before this process has much memory. The child holds nothing of this process.
  [[nodiscard]] static Result<std::unique_ptr<FdHolder>> start();

  /// From here on, connected sockets that open are Open MPI's. Those that are open already and were
  /// not accepted on one of the ports that `note_ports` saw are not.
  void begin();
  /// Ports on which this process has begun to listen since start() are Open MPI's.
  void note_ports();
  /// Gives what has been connected to the child. Cheap if nothing has.
  void keep_new();

 private:
  explicit FdHolder(UniqueFd child);
  void send(int socket);

  UniqueFd child_;
  std::set<std::uint16_t> older_ports_;  // not Open MPI's
  std::set<std::uint16_t> ports_;
  std::set<ino_t> known_;  // sockets that are kept, or not ours to keep
};

}  // namespace mayfly::collectives
