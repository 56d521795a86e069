#pragma once

// The program mayfly-simulate, which `mayfly simulate` starts. It runs the product's machines in
// simulated time, hundreds of jobs a second, each drawn from one seed.

#include <string>
#include <vector>

#include "cli/context.hpp"

namespace mayfly::sim {

/// Runs the simulator with these command-line arguments; returns the exit code.
[[nodiscard]] int run_simulator(const std::vector<std::string>& words, cli::Context& context);

}  // namespace mayfly::sim
