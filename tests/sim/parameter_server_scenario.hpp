#pragma once

// A job with parameter servers, and what happens to it, drawn from a seed: policies, phases,
// servers, stragglers, faults, and what its operator asks for.

#include <string>

#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

/// Always with a coordinator.
[[nodiscard]] PsOptions draw_parameter_server(std::uint64_t seed);
/// In one line.
[[nodiscard]] std::string describe(const PsOptions& options);

}  // namespace mayfly::sim
