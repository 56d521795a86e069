#pragma once

// Processes that a launcher starts are told all settings by a file, in which those of the
// launcher's environment are already. Their own environment would win over that file, so they get
// none.

#include <string>
#include <vector>

namespace mayfly::engine {

/// Names of the variables of this process's environment that are settings. Reserved ones, such as
/// MAYFLY_LAUNCHER_PID and MAYFLY_TEST_..., are not among them.
[[nodiscard]] std::vector<std::string> setting_variables();

}  // namespace mayfly::engine
