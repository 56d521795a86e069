#pragma once

// Facts about the process of the library. Any thread, while no thread changes the environment.

#include <string>

#include "base/result.hpp"

namespace mayfly::library {

/// The path of the program `mayfly`, which the sentinel runs: the one that the environment names,
/// or one in the folder of the library or in ../bin of that folder. kNotFound with advice for the
/// user.
[[nodiscard]] Result<std::string> find_program();

}  // namespace mayfly::library
