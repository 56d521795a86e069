#pragma once

// Sends a text from rank 0 to the other ranks when they share no files: over the launcher's own
// connections, which exist before those of the job.

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "engine/launch/launched_by.hpp"

namespace mayfly::engine {

class RankChannel {
 public:
  virtual ~RankChannel() = default;
  /// Called on rank 0, once: every other rank will receive `text`, of up to kChannelTextMax bytes.
  virtual Result<void> publish(const std::string& text) = 0;
  /// Called on every other rank, once: waits for the text. kDeadline; kIo if the launcher breaks
  /// off.
  virtual Result<std::string> receive(Instant deadline) = 0;
};

inline constexpr std::size_t kChannelTextMax = 4096;

/// A channel over the wire protocol of PMI-1 that mpiexec of MPICH and Intel MPI, and srun
/// --mpi=pmi2, speak with their processes on the connection `launcher`. publish() on rank 0 waits
/// until every rank has called receive().
[[nodiscard]] std::unique_ptr<RankChannel> make_pmi_channel(UniqueFd launcher);

/// A channel over the PMIx library, which Open MPI's mpirun and srun --mpi=pmix serve. Loads the
/// library; kUnsupported if there is none, kIo if the launcher does not answer it.
[[nodiscard]] Result<std::unique_ptr<RankChannel>> open_pmix_channel();

/// Opens the channel that the variables announce; null if this launcher offers neither, or does not
/// answer.
[[nodiscard]] std::unique_ptr<RankChannel> open_rank_channel(const Variables& variables);

}  // namespace mayfly::engine
