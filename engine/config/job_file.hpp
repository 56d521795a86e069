#pragma once

// A configuration as a file for users to read and edit. Pure; implemented beside to_toml().

#include <string>

#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The settings that differ from their defaults: those of the cloud in the table [cloud], its
/// offers as [[cloud.offer]]. apply_toml reads it back to the same values. Needs a configuration
/// with valid offers.
[[nodiscard]] std::string to_job_file(const JobConfig& config);

}  // namespace mayfly::engine
