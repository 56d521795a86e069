#pragma once

// The directory of a run's files, and the lock of the process that may write them.

#include "base/bytes.hpp"
#include "base/lock_file.hpp"
#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The lock of the run directory, under which everything in it is read and written. Chooses the
/// directory if `config` names none. kRefused if another process has it.
[[nodiscard]] Result<LockFile> lock_run_directory(JobConfig& config);

/// The job's token, of config.token_file. kInvalidInput if connections are to be encrypted and it
/// is not a token for that; otherwise as read_token_file().
[[nodiscard]] Result<Bytes> read_job_token(const JobConfig& config);

/// Sets the settings that depend on the machine and the time; see CoordinatorProcess::start.
void resolve_defaults(JobConfig& config);

}  // namespace mayfly::engine
