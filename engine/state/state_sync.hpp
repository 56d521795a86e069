#pragma once

// The exchange between the members of a new view that brings them to the same state before its
// first step. The state is sent only to members that lack it. Whether all others have the same is
// not compared here; the reduction of the view's first step does that (ADR 18). Trainer thread
// only.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "elastic/core/view.hpp"
#include "engine/reduction/bucket_tuner.hpp"
#include "engine/state/state_transfer.hpp"
#include "nn/dtype.hpp"

namespace mayfly::engine {

/// The members that each send a part of a state of `state_bytes` bytes to members that are behind:
/// so many of donors_of(view) that each has some megabytes to send. Equal on all members. Pure.
[[nodiscard]] std::vector<Rank> senders_of(const elastic::View& view, std::size_t state_bytes);

/// All members exchange their addresses as donors and the content of their bucket tuners, and all
/// take that of the one who has tried most: a member that comes with the state has tried nothing.
/// Returns the addresses by rank.
[[nodiscard]] Result<std::vector<DonorAddress>> exchange_senders(collectives::Group& group,
                                                                 const DonorAddress& own,
                                                                 BucketTuner& tuner,
                                                                 Instant deadline);

/// For a member that is behind: the packed state of the view, `state_bytes` long, from its senders;
/// `addresses` are by rank. Blocks; fails as fetch_parts() does.
[[nodiscard]] Result<PackedBytes> fetch_state(const elastic::View& view,
                                              const std::vector<DonorAddress>& addresses,
                                              std::size_t state_bytes, int stop_fd,
                                              ByteSpan token = {});

/// In a view with observers: all members exchange what observers need for its reductions, which is
/// the exponents and the loss scale of the next step and the content of the bucket tuner. All take
/// the source's tuner. A member that `observes` takes the rest, too, kCorrupt if no job can have
/// such a scale; whether the others have the same is compared in the step's reduction (ADR 18),
/// which also finds out who is wrong.
[[nodiscard]] Result<void> sync_observers(collectives::Group& group, const elastic::View& view,
                                          bool observes, std::vector<std::int32_t>& exponents,
                                          std::optional<nn::LossScale>& scale, BucketTuner& tuner,
                                          Instant deadline);

/// All members exchange their addresses as donors; the result is by rank.
[[nodiscard]] Result<std::vector<DonorAddress>> exchange_addresses(collectives::Group& group,
                                                                   const DonorAddress& own,
                                                                   Instant deadline);

}  // namespace mayfly::engine
