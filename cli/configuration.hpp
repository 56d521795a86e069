#pragma once

// From the words of a command to the configuration of a job.

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cli/context.hpp"
#include "engine/config/config.hpp"

namespace mayfly::cli {

/// Upper bound on a configuration file.
inline constexpr std::size_t kConfigBytesMax = 1 << 20;

/// The settings by precedence: flag, environment, the file of --config, then `config`.
/// kInvalidInput with the source of a wrong value. Whether the settings fit together is not checked
/// here, because a worker still merges them with those of its coordinator.
[[nodiscard]] Result<engine::JobConfig> collect_settings(const ParsedArguments& arguments,
                                                         const Context& context,
                                                         engine::JobConfig config = {});

/// The same, validated: settings that contradict each other are kInvalidInput, too.
[[nodiscard]] Result<engine::JobConfig> resolve_config(const ParsedArguments& arguments,
                                                       const Context& context,
                                                       engine::JobConfig config = {});

}  // namespace mayfly::cli
