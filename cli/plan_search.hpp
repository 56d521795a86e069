#pragma once

// `mayfly plan` without a further word: plans a job on the offers of a market. Any thread.

#include "cli/arguments.hpp"
#include "cli/context.hpp"

namespace mayfly::cli {

/// The options of the command.
[[nodiscard]] std::vector<OptionSpec> plan_options();
/// The job's settings that are flags of the command.
[[nodiscard]] std::vector<std::string> plan_settings();

/// kExitDone if a plan was chosen, kExitFailed if no plan keeps the limits with the required
/// probability, kExitUsage if the question cannot be answered.
int plan_job(const ParsedArguments& arguments, Context& context);

}  // namespace mayfly::cli
