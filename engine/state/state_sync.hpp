#pragma once

// How the members of a new view come to the same state before its first step.

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "elastic/core/view.hpp"
#include "engine/reduction/bucket_tuner.hpp"
#include "engine/state/state_transfer.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// Brings every member of a new view to the state after view.committed: if anyone is behind, the
/// view's source sends its state, and what it tried about buckets, to all. Not for observers, and
/// nobody is behind where there are some. Members that already
/// have it check that it is the same. kDiverged if it is not; otherwise fails as the group does.
[[nodiscard]] Result<void> sync_state(collectives::Group& group, const elastic::View& view,
                                      nn::ModelState& state, BucketTuner& tuner, Instant deadline);

/// In a view with observers: all exchange what those need to take part in its reductions, the
/// exponents of the next step and what was tried about buckets. `observes`: take them, instead of
/// checking that ours are the same; kDiverged if they are not.
[[nodiscard]] Result<void> sync_observers(collectives::Group& group, const elastic::View& view,
                                          bool observes, std::vector<std::int32_t>& exponents,
                                          BucketTuner& tuner, Instant deadline);

/// All tell all where they listen as donors; by rank.
[[nodiscard]] Result<std::vector<DonorAddress>> exchange_addresses(collectives::Group& group,
                                                                   const DonorAddress& own,
                                                                   Instant deadline);

}  // namespace mayfly::engine
