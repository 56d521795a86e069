#pragma once

// Test accuracy of a state, computed by all members of a view together.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "elastic/core/view.hpp"
#include "engine/training/computer.hpp"

namespace mayfly::engine {

/// The chunks of the test set, of `count`, that the member of this rank evaluates; none if it does
/// not have the state. Each chunk is assigned to one member. Pure.
[[nodiscard]] std::vector<std::uint32_t> evaluation_chunks(const elastic::View& view, Rank rank,
                                                           std::size_t count);

/// The sums over all members. Blocks; fails as the group does.
[[nodiscard]] Result<EvaluationSums> sum_of_members(collectives::Group& group,
                                                    const EvaluationSums& own, Instant deadline);

}  // namespace mayfly::engine
