#pragma once

// The next view, made of the members that are ready: who is in it, who computes what, who takes the
// state in the background. Pure functions of the membership.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/outbox.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

/// The view of Membership::next_members(), of which there must be one; `id` and `bases` are as in
/// View. Each microbatch has exactly one owner, in the first step and in all others.
[[nodiscard]] View make_view(const Membership& membership, ViewId id, std::vector<ViewBase> bases,
                             const CoordinatorOptions& options);

/// Members of `next` that are ready and have not been in a view before, in the order of their ids.
[[nodiscard]] std::vector<MemberId> newcomers_in(const View& next, const Membership& membership);

/// Microbatches of the step in progress that must be computed again, because those who held their
/// sums are gone; 0 if nobody had begun it. `next` is not yet entered.
[[nodiscard]] std::uint32_t count_redone(const View& next, const Membership& membership);

/// What the next view is to change although nothing is wrong with this one.
struct PlannedChange {
  ChangeCause cause = ChangeCause::kJoin;
  std::vector<MemberId> members;  ///< those that leave, join, or get work; there is one at least
};
/// While a view runs: members that asked to leave go first, then ready workers join if there is
/// room, then observers that have caught up get work, once no other one is about to: observers that
/// follow each other within `start_together` start together.
[[nodiscard]] std::optional<PlannedChange> planned_change(const Membership& membership, Instant now,
                                                          Duration start_together);

/// Tells everybody of `view`, after the log: members of a large view `before` what changes, others
/// the whole.
void announce(const View& view, const std::optional<View>& before, std::uint32_t delta_from_members,
              Outbox& outbox);

}  // namespace mayfly::elastic
