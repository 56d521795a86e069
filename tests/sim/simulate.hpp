#pragma once

// The program mayfly-simulate, which `mayfly simulate` starts: the product's machines in simulated
// time, hundreds of jobs a second, each from one seed.

#include <string>
#include <vector>

#include "cli/context.hpp"

namespace mayfly::sim {

/// Runs it with these words, its flags; returns the exit code.
[[nodiscard]] int run_simulator(const std::vector<std::string>& words, cli::Context& context);

}  // namespace mayfly::sim
