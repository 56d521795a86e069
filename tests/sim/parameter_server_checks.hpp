#pragma once

// The promises that every simulated job with parameter servers must keep, with any faults.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

/// The first promise that was broken, or "". The promises are:
/// - the job ended, unless a shard was lost with its follower;
/// - no push was refused;
/// - every shard has summed every slice of the job exactly once;
/// - every shard made as many updates as the plan has;
/// - the recorded pushes, replayed on a new machine, give the same numbers;
/// - snapshots contain exactly the slices before them;
/// - SSP kept the fastest worker within the bound (without faults);
/// - BSP ended with the numbers of one undisturbed worker;
/// and with a coordinator, too:
/// - the job ended as requested, and as done if no work was left;
/// - no member was dismissed, no view made and no slice computed twice without a cause;
/// - a change of view took no longer than the steps in progress;
/// - no worker was left without work while other workers got leases;
/// - a job that was stopped in time has a checkpoint of whole steps.
[[nodiscard]] std::string violation(const PsOptions& options, const PsResult& result);

/// The number of seeds for which each claim is checked: MAYFLY_SIM_SEEDS, or 150.
[[nodiscard]] std::uint64_t seeds_asked();

/// All promises that were broken.
[[nodiscard]] std::vector<std::string> violations(const PsOptions& options, const PsResult& result);

/// The options in words, for the message of a failed check.
[[nodiscard]] std::string named(const PsOptions& options);

}  // namespace mayfly::sim
