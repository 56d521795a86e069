#pragma once

// What must be true of a simulated job with parameter servers, whatever happened to it.

#include <cstdint>
#include <string>

#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

/// The first promise that was broken, or nothing:
/// - the job ended, unless a shard was lost with its follower;
/// - on every shard every slice of the job is in exactly once;
/// - as many updates as the plan says;
/// - the recorded pushes, played to a fresh machine, give the same numbers;
/// - snapshots hold exactly the slices before them;
/// - SSP kept the fastest within the bound (without faults);
/// - BSP ended with the numbers of one undisturbed worker.
[[nodiscard]] std::string violation(const PsOptions& options, const PsResult& result);

/// How many seeds each claim is checked for: 150, unless MAYFLY_SIM_SEEDS asks for others.
[[nodiscard]] std::uint64_t seeds_asked();

/// The schedule, for the message of a failed check.
[[nodiscard]] std::string named(const PsOptions& options);

}  // namespace mayfly::sim
