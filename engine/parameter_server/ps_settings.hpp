#pragma once

// Settings of parameter servers, and what can be said of them without the data set. Pure; no thread
// matters.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The job's gradients go through parameter servers.
[[nodiscard]] bool uses_parameter_servers(const JobConfig& config);
/// What --phases says, or --sync.
[[nodiscard]] const std::string& phases_text(const JobConfig& config);
/// How many slices a step has if --slices does not say it: as many as workers, or as a backup phase
/// needs; with straggler elastic the most there can be; never more than microbatches.
[[nodiscard]] std::uint32_t slices_per_step(const JobConfig& config);
/// Everything that can be said without the data set; kInvalidInput.
[[nodiscard]] Result<void> check_parameter_servers(const JobConfig& config);

}  // namespace mayfly::engine
