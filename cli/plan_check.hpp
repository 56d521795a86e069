#pragma once

// `mayfly plan check`: a plan against what came of it. Any thread.

#include "cli/arguments.hpp"
#include "cli/context.hpp"

namespace mayfly::cli {

/// `mayfly plan check RUN_DIR`: compares the run with the plan that lies in it; with
/// --calibration DIR it plans the run in hindsight. Prints each quantity with its interval beside
/// the actual value, and by what the total time is off.
/// kExitUsage, with one line, if the folder is no run that can be checked.
int plan_check(const ParsedArguments& arguments, Context& context);

}  // namespace mayfly::cli
