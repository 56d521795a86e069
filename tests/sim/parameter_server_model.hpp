#pragma once

// What stands for gradients in parameter_server_world: one number, by an arithmetic that depends on
// everything before. That of updates is in parameter_server_replica.

#include <cstdint>
#include <vector>

namespace mayfly::sim {

/// The gradient of a slice for one shard, as a number: it depends on all parameters.
[[nodiscard]] std::uint64_t gradient_of(std::uint64_t slice,
                                        const std::vector<std::uint64_t>& parameters,
                                        std::uint32_t shard);

}  // namespace mayfly::sim
