#pragma once

// What stands for gradients in parameter_server_world: one number, by an arithmetic that depends on
// everything before. That of updates is in parameter_server_replica.

#include <cstdint>
#include <vector>

#include "collectives/parameter_server/core/sync_plan.hpp"

namespace mayfly::sim {

/// The gradient of a slice for one shard, as a number: it depends on all parameters.
[[nodiscard]] std::uint64_t gradient_of(std::uint64_t slice,
                                        const std::vector<std::uint64_t>& parameters,
                                        std::uint32_t shard);
/// Which slice of the job's samples this one is; another number only after a divergence.
[[nodiscard]] std::uint64_t samples_of(const parameter_server::SyncPlan& plan, std::uint64_t slice);

}  // namespace mayfly::sim
