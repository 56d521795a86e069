#pragma once

// What `mayfly cloud doctor` says of a job's GPUs, beside what the provider itself has looked at.

#include <vector>

#include "cloud_hooks/core/provider.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// For a job whose servers compute on GPUs: the GPU of each offer's machine type, and whether the
/// bundle has the module that they need. Empty for other jobs. `config` is valid, so no GPU is
/// known to be too old. Reads the bundle; asks nobody.
[[nodiscard]] std::vector<cloud_hooks::Finding> examine_gpus(const JobConfig& config);

}  // namespace mayfly::engine
