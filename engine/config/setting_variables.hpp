#pragma once

// Processes that a launcher starts read all settings from a file, which includes the settings of
// the launcher's environment. Variables in their own environment would override that file, so the
// launcher removes them.

#include <string>
#include <vector>

namespace mayfly::engine {

/// Names of the variables of this process's environment that are settings. Reserved ones, such as
/// MAYFLY_LAUNCHER_PID and MAYFLY_TEST_..., are not among them.
[[nodiscard]] std::vector<std::string> setting_variables();

}  // namespace mayfly::engine
