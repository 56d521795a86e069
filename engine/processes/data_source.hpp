#pragma once

// Fetches a data set that is not on the worker's host (--data-from). It is kept in the cache
// folder, complete or not at all, for all workers of the host and for later jobs.

#include <functional>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// If `config.data` does not exist and --data-from names a source: fetches the data set, unless
/// another worker of this host has done so or is doing it, and puts its path into `config.data`. As
/// for any data set, its digest is checked when the worker joins the job.
///
/// --data-from is "coordinator" (each file checked by its hash; a connection that breaks is taken
/// up again where it broke), the URL of a tar (by the program curl), a folder or a tar (copied), or
/// a command with {} for the folder that it fills. kRefused with the coordinator's reason; kAborted
/// within a few seconds if `is_called_off` says that the worker is to leave; kPeerLost if the
/// coordinator is gone; kIo, kNotFound or kInvalidInput with what failed; nothing is left behind
/// then.
[[nodiscard]] Result<void> fetch_data(JobConfig& config,
                                      const std::function<bool()>& is_called_off);

}  // namespace mayfly::engine
