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

/// The microbatches [first, first + count).
struct MicrobatchRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  friend bool operator==(const MicrobatchRange&, const MicrobatchRange&) = default;
};

/// Splits `microbatches` into one contiguous range per rank so that the slowest member finishes as
/// early as possible. `microbatch_ms` has the measured time of one microbatch by rank; 0 means
/// unknown and counts as the median of the known ones. If the speeds are equal within 20 %, the
/// sizes differ by at most one. Every member gets at least one microbatch if there are enough, so
/// that its speed can be measured.
[[nodiscard]] std::vector<MicrobatchRange> proportional_ranges(
    const std::vector<float>& microbatch_ms, std::uint32_t microbatches);

/// The assignment of a view's first step. `held`: by rank, the microbatches whose sums the member
/// still has for exactly this step; if two members hold the same one, the first in rank order keeps
/// it. The other microbatches are assigned in two passes.
/// Their number: each goes to the member that would finish its new work first. Among equals, to the
/// one that holds fewest, because members that hold some may also be computing others, then to the
/// lower rank. An unknown speed counts as the fastest known one, because a newcomer is idle.
/// Which ones: as far as possible a member gets those of `usual`, what it would compute without a
/// change, the lowest first, because it may have read them ahead, and because the view's delta is
/// then small.
/// If no member holds anything, the result is proportional_ranges().
[[nodiscard]] std::vector<MicrobatchSet> first_step_sets(const std::vector<MicrobatchSet>& held,
                                                         const std::vector<MicrobatchSet>& usual,
                                                         const std::vector<float>& microbatch_ms,
                                                         std::uint32_t microbatches);

/// True if all members that held the job's state are lost, and no candidate was offered the newest
/// checkpoint, which may have a later step than they have.
[[nodiscard]] bool has_lost_state(const Membership& membership);

/// The view of Membership::next_members(), which must not be empty; `id` and `bases` are as in
/// View. Each microbatch has exactly one owner, in the first step and in all others.
[[nodiscard]] View make_view(const Membership& membership, ViewId id, std::vector<ViewBase> bases,
                             const CoordinatorOptions& options);

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
