#pragma once

// What stands for gradients and parameters in parameter_server_world: one number for each, and an
// arithmetic that depends on everything before.

#include <cstdint>
#include <map>
#include <vector>

#include "collectives/parameter_server/core/update_order.hpp"

namespace mayfly::sim {

/// The gradient of a slice for one shard, as a number: it depends on all parameters.
[[nodiscard]] std::uint64_t gradient_of(std::uint64_t slice,
                                        const std::vector<std::uint64_t>& parameters,
                                        std::uint32_t shard);
/// The parameters after an update by some of these gradients, by slice.
[[nodiscard]] std::uint64_t updated(std::uint64_t model, const parameter_server::Update& update,
                                    const std::map<std::uint64_t, std::uint64_t>& gradients);

}  // namespace mayfly::sim
