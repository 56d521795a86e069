#pragma once

// What must be true of a simulated job with parameter servers, whatever happened to it.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

/// The first promise that was broken, or nothing:
/// - the job ended, unless a shard was lost with its follower;
/// - no push was refused;
/// - on every shard every slice of the job is in exactly once;
/// - as many updates as the plan says;
/// - the recorded pushes, played to a fresh machine, give the same numbers;
/// - snapshots hold exactly the slices before them;
/// - SSP kept the fastest within the bound (without faults);
/// - BSP ended with the numbers of one undisturbed worker;
/// and with a coordinator, too:
/// - the job ended as it was asked to, and as done if nothing was left;
/// - nobody was sent away, no view made and no slice computed twice without a cause;
/// - a change of view took no longer than the steps that were begun;
/// - nobody was left without work while others got some;
/// - a job that was stopped in time has a checkpoint of whole steps.
[[nodiscard]] std::string violation(const PsOptions& options, const PsResult& result);

/// How many seeds each claim is checked for: 150, unless MAYFLY_SIM_SEEDS asks for others.
[[nodiscard]] std::uint64_t seeds_asked();

/// Everything that was broken.
[[nodiscard]] std::vector<std::string> violations(const PsOptions& options, const PsResult& result);

/// The schedule, for the message of a failed check.
[[nodiscard]] std::string named(const PsOptions& options);

}  // namespace mayfly::sim
