#pragma once

// How rank 0 tells the other ranks of a launcher something when they share no files: over the
// launcher's own connections, which exist before any of ours.

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

/// Over the wire protocol of PMI-1 that mpiexec of MPICH and Intel MPI, and srun --mpi=pmi2, speak
/// with their processes on the connection `launcher`. Rank 0 waits in publish() until every rank
/// has come to its call.
[[nodiscard]] std::unique_ptr<RankChannel> make_pmi_channel(UniqueFd launcher);

/// Over the PMIx library that Open MPI's mpirun and srun --mpi=pmix serve. Loads it; kUnsupported
/// if there is none, kIo if the launcher does not answer it.
[[nodiscard]] Result<std::unique_ptr<RankChannel>> open_pmix_channel();

/// What the variables promise: null if this launcher offers none of these, or none that answers.
[[nodiscard]] std::unique_ptr<RankChannel> open_rank_channel(const Variables& variables);

}  // namespace mayfly::engine
