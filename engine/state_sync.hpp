#pragma once

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "elastic/core/view.hpp"
#include "engine/bucket_tuner.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// Brings every member of a new view to the state after view.committed: if anyone is behind, the
/// view's source sends its state, and what it tried about buckets, to all. Members that already
/// have it check that it is the same. kDiverged if it is not; otherwise fails as the group does.
[[nodiscard]] Result<void> sync_state(collectives::Group& group, const elastic::View& view,
                                      nn::ModelState& state, BucketTuner& tuner, Instant deadline);

}  // namespace mayfly::engine
