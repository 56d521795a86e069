#pragma once

// `mayfly plan fit`: a calibration from run directories. Any thread.

#include "cli/arguments.hpp"
#include "cli/context.hpp"

namespace mayfly::cli {

/// The options of this form of the command, and of plan_check.
[[nodiscard]] std::vector<OptionSpec> plan_fit_options();

/// `mayfly plan fit RUN_DIR... --output DIR`. kExitUsage, with one line and nothing written, if a
/// folder is no run that can be fitted or DIR is not empty.
int plan_fit(const ParsedArguments& arguments, Context& context);

}  // namespace mayfly::cli
