#pragma once

// What a new server runs: the script that goes along with the request for it, and the one that it
// gets from the coordinator if that serves a bundle (docs/cloud.md).

#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// Where the workers on servers find the job: cloud_coordinators, or `own`.
[[nodiscard]] std::string worker_coordinators(const JobConfig& config, const std::string& own);

/// The text of the job's token file, for scripts and for bundle_access(). kIo.
[[nodiscard]] Result<std::string> token_text(const JobConfig& config);

/// Without a bundle: the user's script with its marks filled in, or one for machines that see our
/// files. `token` takes the place of {token}. kInvalidInput if the settings do not say enough.
[[nodiscard]] Result<std::string> startup_text(const JobConfig& config,
                                               const std::string& coordinators,
                                               const std::string& token);

/// With a bundle: what the server gets from us and runs. It holds the bundle's hash, and no secret.
/// kInvalidInput if the user's script wants one.
[[nodiscard]] Result<std::string> served_start(const JobConfig& config,
                                               const std::string& coordinators,
                                               const std::string& bundle_sha256);
/// With a bundle: what goes along with the request. It knows three things: where we serve, the
/// token, and the hash of served_start().
[[nodiscard]] std::string fetching_text(const JobConfig& config, const std::string& address,
                                        const std::string& token, const std::string& start_sha256);

}  // namespace mayfly::engine
