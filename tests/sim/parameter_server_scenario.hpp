#pragma once

// Draws a job with parameter servers from a seed: policies, phases, servers, stragglers, faults and
// commands of the operator.

#include <string>

#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

/// The options of this seed; the job always has a coordinator.
[[nodiscard]] PsOptions draw_parameter_server(std::uint64_t seed);
/// The options in one line.
[[nodiscard]] std::string describe(const PsOptions& options);

}  // namespace mayfly::sim
