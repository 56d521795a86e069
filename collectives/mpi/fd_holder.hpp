#pragma once

// Keeps the TCP connections of this process open beyond its death.
//
// Open MPI 4.1 does not survive a broken connection: while it handles the messages in transit, it
// may end the process or keep it busy for ever. If the connections of a dead rank stay open, its
// peers only see a rank that does not answer, which they can leave out.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <set>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::collectives {

/// A child process that holds copies of sockets until mpirun, or its daemon on this machine, ends.
/// One thread at a time.
class FdHolder {
 public:
  /// Forks; to be called before this process has much memory. The child keeps no resources of this
  /// process.
  [[nodiscard]] static Result<std::unique_ptr<FdHolder>> start();

  /// From now on new connected sockets are taken for Open MPI's. Sockets that are open already are
  /// not, unless they were accepted on one of the ports that note_ports() has found.
  void begin();
  /// The ports on which this process has begun to listen since start() are Open MPI's.
  void note_ports();
  /// Passes copies of new connections to the child. Cheap if there are none.
  void keep_new();

 private:
  explicit FdHolder(UniqueFd child);
  void send(int socket);

  UniqueFd child_;
  std::set<std::uint16_t> older_ports_;  // not Open MPI's
  std::set<std::uint16_t> ports_;
  std::set<ino_t> known_;  // sockets that are kept, or that are not Open MPI's
};

}  // namespace mayfly::collectives
