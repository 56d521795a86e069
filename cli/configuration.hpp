#pragma once

// From the words of a command to the configuration of a job.

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cli/context.hpp"
#include "engine/config/config.hpp"

namespace mayfly::cli {

/// Upper bound on a configuration file.
inline constexpr std::size_t kConfigBytesMax = 1 << 20;

/// By precedence: flag, environment, the file of --config, and `config` for what nobody says.
/// kInvalidInput with the source of what is wrong; whether they go together is not looked at yet.
[[nodiscard]] Result<engine::JobConfig> collect_settings(const ParsedArguments& arguments,
                                                         const Context& context,
                                                         engine::JobConfig config = {});

/// The same, ready to be used: what does not go together is kInvalidInput, too.
[[nodiscard]] Result<engine::JobConfig> resolve_config(const ParsedArguments& arguments,
                                                       const Context& context,
                                                       engine::JobConfig config = {});

}  // namespace mayfly::cli
