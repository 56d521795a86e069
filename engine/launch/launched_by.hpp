#pragma once

// Finds out which launcher started this process and with which rank, from the environment variables
// that mpirun, mpiexec and srun set for the processes that they start. Pure.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace mayfly::engine {

enum class Launcher {
  kOpenMpi,  ///< mpirun of Open MPI, and prterun, which sets the same variables
  kPmi,      ///< mpiexec of MPICH, Intel MPI and others that speak PMI
  kSlurm,    ///< srun
};

struct LaunchedBy {
  Launcher launcher = Launcher::kOpenMpi;
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t local_size = 0;               ///< ranks on this host; 0 = unknown
  std::optional<std::uint32_t> local_rank{};  ///< which one of those; empty = unknown
  std::string job;    ///< equal on all ranks, another one each time; empty = unknown
  std::string hosts;  ///< of the ranks, as the launcher writes them; empty = unknown

  [[nodiscard]] bool is_on_one_host() const { return local_size >= size; }
};

/// The value of an environment variable, or null.
using Variables = std::function<const char*(const char*)>;

/// Nothing for a single process: one without a launcher, the only one of an srun or an mpiexec, the
/// script of an sbatch, or the shell of an salloc. kInvalidInput with advice if by the variables
/// there are several processes but this one's rank is unknown, or if the variables contradict each
/// other; otherwise each process would start a job of its own.
[[nodiscard]] Result<std::optional<LaunchedBy>> launched_by(const Variables& variables);

/// Human-readable.
[[nodiscard]] const char* name_of(Launcher launcher);

}  // namespace mayfly::engine
