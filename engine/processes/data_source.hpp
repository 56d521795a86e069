#pragma once

// Where a worker gets the data set from that is not on its host (--data-from). It is kept in the
// cache folder, complete or not at all, for all workers of the host and for later jobs.

#include <functional>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// If `config.data` is not there and --data-from says where it comes from: gets it, unless an
/// earlier worker of this host has or is about to, and puts its path into `config.data`. What it is
/// gets checked as any data set is, by its digest, when the worker joins the job.
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
