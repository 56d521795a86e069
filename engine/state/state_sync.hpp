#pragma once

// How the members of a new view come to the same state before its first step. A state is sent to
// those who lack it and to nobody else. That all others have the same is not compared here: the
// reduction of the view's first step does it (ADR 18).

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "elastic/core/view.hpp"
#include "engine/reduction/bucket_tuner.hpp"
#include "engine/state/packed_bytes.hpp"
#include "engine/state/state_transfer.hpp"
#include "nn/loss_scale.hpp"

namespace mayfly::engine {

/// The members that send a state of `state_bytes` to those who are behind, a part each: of
/// donors_of(view) as many as have some megabytes each to send. Equal on all members.
[[nodiscard]] std::vector<Rank> senders_of(const elastic::View& view, std::size_t state_bytes);

/// In a view where somebody is behind: all tell all where they listen as donors, and what they
/// tried about buckets. `is_behind`: takes the latter from the source, instead of checking that
/// ours is the same; kDiverged if it is not. Returns the addresses by rank.
[[nodiscard]] Result<std::vector<DonorAddress>> exchange_senders(collectives::Group& group,
                                                                 const elastic::View& view,
                                                                 const DonorAddress& own,
                                                                 bool is_behind, BucketTuner& tuner,
                                                                 Instant deadline);

/// For who is behind: the packed state of the view, of packed_state_size() `state_bytes`, from
/// its senders; `addresses` are by rank. Blocks; fails as fetch_parts() does.
[[nodiscard]] Result<PackedBytes> fetch_state(const elastic::View& view,
                                              const std::vector<DonorAddress>& addresses,
                                              std::size_t state_bytes, int stop_fd,
                                              ByteSpan token = {});

/// In a view with observers: all exchange what those need to take part in its reductions, the
/// exponents and the loss scale of the next step, and what was tried about buckets. `observes`:
/// take them, kCorrupt if no job can have such a scale, instead of checking that ours are the same;
/// kDiverged if they are not.
[[nodiscard]] Result<void> sync_observers(collectives::Group& group, const elastic::View& view,
                                          bool observes, std::vector<std::int32_t>& exponents,
                                          std::optional<nn::LossScale>& scale, BucketTuner& tuner,
                                          Instant deadline);

/// All tell all where they listen as donors; by rank.
[[nodiscard]] Result<std::vector<DonorAddress>> exchange_addresses(collectives::Group& group,
                                                                   const DonorAddress& own,
                                                                   Instant deadline);

}  // namespace mayfly::engine
