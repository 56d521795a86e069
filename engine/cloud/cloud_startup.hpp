#pragma once

// The scripts of a new server: the one in the request for it, and the one that it downloads from a
// coordinator that serves a bundle (docs/cloud.md).

#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The addresses under which workers on servers find the job: cloud_coordinators, or `own`.
[[nodiscard]] std::string worker_coordinators(const JobConfig& config, const std::string& own);

/// The arguments of `mayfly worker` on servers, for a shell: with the user's program at the end if
/// the job has one (cloud_program).
[[nodiscard]] std::string worker_words(const JobConfig& config);

/// The text of the job's token file, for scripts and for bundle_access(). kIo.
[[nodiscard]] Result<std::string> token_text(const JobConfig& config);

/// The script of a request without a bundle: the user's, with its marks replaced, or one for
/// machines that share the coordinator's file system. `token` replaces {token}. kInvalidInput if a
/// setting is missing.
[[nodiscard]] Result<std::string> startup_text(const JobConfig& config,
                                               const std::string& coordinators,
                                               const std::string& token);

/// The script that a server downloads with the bundle and runs. It contains the bundle's hash and
/// no secret. kInvalidInput if the user's script asks for the token.
[[nodiscard]] Result<std::string> served_start(const JobConfig& config,
                                               const std::string& coordinators,
                                               const std::string& bundle_sha256);
/// The script of a request with a bundle. It contains the address of the bundle server, the token,
/// and the hash of served_start().
[[nodiscard]] std::string fetching_text(const JobConfig& config, const std::string& address,
                                        const std::string& token, const std::string& start_sha256);

}  // namespace mayfly::engine
