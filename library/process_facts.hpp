#pragma once

// Facts that the library finds out about its own process. Any thread, while no thread changes the
// environment.

#include <string>

#include "base/result.hpp"

namespace mayfly::library {

/// The program `mayfly`, which the sentinel runs: what the environment names, or beside the
/// library, or in ../bin of that. kNotFound with what to do.
[[nodiscard]] Result<std::string> find_program();

}  // namespace mayfly::library
