#pragma once

// The next view, made from the members that are ready: its members, their microbatches, and which
// of them receive the state in the background. Pure functions of what the coordinator knows when it
// makes a view; any thread. The results are part of the view, so members never have to agree on
// them.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

/// True if all members that held the job's state are lost, and no candidate was offered the newest
/// checkpoint, which may have a later step than they have.
[[nodiscard]] bool has_lost_state(const Membership& membership);

/// The view of these candidates of the membership, of which there must be one at least; `id` and
/// `bases` are as in View. Each microbatch has exactly one owner, in the first step and in all
/// others.
[[nodiscard]] View make_view(const Membership& membership, const Candidates& candidates, ViewId id,
                             std::vector<ViewBase> bases, const CoordinatorOptions& options);

/// Members of `next` that are ready and have not been in a view before, in the order of their ids.
[[nodiscard]] std::vector<MemberId> newcomers_in(const View& next, const Membership& membership);

/// The number of microbatches of the step in progress that must be computed again, because the
/// members that held their sums are lost; 0 if the step had not begun. `next` is not yet entered.
[[nodiscard]] std::uint32_t count_redone(const View& next, const Membership& membership);

/// A change that needs a new view although nothing is wrong with the present one.
struct PlannedChange {
  ChangeCause cause = ChangeCause::kJoin;
  std::vector<MemberId> members;  ///< the members that leave, join or get work; at least one
};
/// The next planned change of a running view, or nothing. In this order: members that asked to
/// leave leave; ready workers join if there is room; observers that have received the state get
/// work. Observers that finish within `start_together` of each other get it together.
[[nodiscard]] std::optional<PlannedChange> planned_change(const Membership& membership, Instant now,
                                                          Duration start_together);

/// Records `view` in the log and sends it to its members. Members of `before` get only the
/// difference if `before` has at least `delta_from_members` members.
void announce(View view, const std::optional<View>& before, std::uint32_t delta_from_members,
              Outbox& outbox);

}  // namespace mayfly::elastic
