#pragma once

#include <map>
#include <string>

namespace mayfly {

/// A copy of this process's environment: variables by their names. Any thread, while no thread
/// changes the environment.
[[nodiscard]] std::map<std::string, std::string> environment();

}  // namespace mayfly
