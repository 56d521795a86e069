#pragma once

// The exchange between the members of a new view that brings them to the same state before its
// first step. The state is sent only to members that lack it. The states of all other members are
// not compared here, but in the reduction of the view's first step (ADR 18). Trainer thread only.

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

/// The members that each send a part of a state of `state_bytes` bytes to members that are behind.
/// Their number is limited so that each sends some megabytes. Equal on all members. Pure.
[[nodiscard]] std::vector<Rank> senders_of(const elastic::View& view, std::size_t state_bytes);

/// All members exchange their addresses as donors and the content of their bucket tuners. All adopt
/// the tuner that has tried sizes in the most steps, because a worker that joins with the state has
/// tried none. Returns the addresses by rank.
[[nodiscard]] Result<std::vector<DonorAddress>> exchange_senders(collectives::Group& group,
                                                                 const DonorAddress& own,
                                                                 BucketTuner& tuner,
                                                                 Instant deadline);

/// Receives, on a member that is behind, the packed state of the view from its senders. It has
/// `state_bytes` bytes; `addresses` are by rank. Blocks; fails as fetch_parts() does.
[[nodiscard]] Result<PackedBytes> fetch_state(const elastic::View& view,
                                              const std::vector<DonorAddress>& addresses,
                                              std::size_t state_bytes, int stop_fd,
                                              ByteSpan token = {});

/// In a view with observers: the source sends all members the content of its bucket tuner and the
/// exponents and the loss scale of the next step, which observers need for reductions. All members
/// adopt the tuner. A member that `observes` also adopts exponents and scale; kCorrupt if the scale
/// is invalid. The exponents and scales of other members are compared with those of the source in
/// the step's reduction (ADR 18), after which the coordinator decides which member is wrong.
[[nodiscard]] Result<void> sync_observers(collectives::Group& group, const elastic::View& view,
                                          bool observes, std::vector<std::int32_t>& exponents,
                                          std::optional<nn::LossScale>& scale, BucketTuner& tuner,
                                          Instant deadline);

/// All members exchange their addresses as donors; the result is by rank.
[[nodiscard]] Result<std::vector<DonorAddress>> exchange_addresses(collectives::Group& group,
                                                                   const DonorAddress& own,
                                                                   Instant deadline);

}  // namespace mayfly::engine
