#pragma once

// What the library finds out about the process that it is in. Any thread, while nobody changes the
// environment.

#include <map>
#include <string>

#include "base/result.hpp"

namespace mayfly::library {

/// A copy of the environment: variables by their names.
[[nodiscard]] std::map<std::string, std::string> environment();

/// The program `mayfly`, which the sentinel runs: what the environment names, or beside the
/// library, or in ../bin of that. kNotFound with what to do.
[[nodiscard]] Result<std::string> find_program();

}  // namespace mayfly::library
