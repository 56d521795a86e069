#pragma once

// `mayfly plan check`: compares a plan with its run. Any thread.

#include "cli/arguments.hpp"
#include "cli/context.hpp"

namespace mayfly::cli {

/// `mayfly plan check RUN_DIR`: compares the run with the plan in its directory; with --calibration
/// DIR it plans the run in hindsight. Prints each quantity with its interval beside the actual
/// value, and the causes of the error in the total time. kExitUsage, with one line, if the folder
/// is no run that can be checked.
int plan_check(const ParsedArguments& arguments, Context& context);

}  // namespace mayfly::cli
