#pragma once

// Fetches a data set that is not on the worker's host (--data-from). The complete data set is kept
// in the cache folder for all workers of the host and for later jobs.

#include <functional>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// If `config.data` does not exist and --data-from names a source: fetches the data set and sets
/// `config.data` to its path. If another worker of this host has fetched it or is fetching it, uses
/// that copy. As for any data set, its digest is checked when the worker joins the job.
///
/// --data-from is "coordinator" (the hash of each file is checked, and the transfer continues after
/// a connection broke), the URL of a tar (fetched by the program curl), a folder or a tar (copied),
/// or a command with {} for the folder that it fills. kRefused with the coordinator's reason;
/// kAborted within a few seconds if `is_called_off` returns that the worker should leave; kPeerLost
/// if no coordinator answers any more; kIo, kNotFound or kInvalidInput with the reason. After an
/// error no files are left.
[[nodiscard]] Result<void> fetch_data(JobConfig& config,
                                      const std::function<bool()>& is_called_off);

}  // namespace mayfly::engine
