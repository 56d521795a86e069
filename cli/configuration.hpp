#pragma once

// From the words of a command to the configuration of a job.

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cli/context.hpp"
#include "engine/config/config.hpp"

namespace mayfly::cli {

/// By precedence: flag, environment, the file of --config, and `config` for what nobody says.
/// kInvalidInput with the source of what is wrong.
[[nodiscard]] Result<engine::JobConfig> resolve_config(const ParsedArguments& arguments,
                                                       const Context& context,
                                                       engine::JobConfig config = {});

}  // namespace mayfly::cli
