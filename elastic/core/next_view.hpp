#pragma once

// The next view, made of the members that are ready: who is in it, who computes which microbatches,
// who takes the state in the background. Pure functions of what the coordinator knows when it makes
// a view; the answers travel inside the view, so members never have to agree on them.

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

/// Splits `microbatches` into one contiguous range per rank so that the slowest member is done as
/// early as possible. `microbatch_ms` is the measured time of one microbatch by rank; 0 means
/// unknown and counts as the median of the known ones. If the speeds are equal within 20 %, the
/// sizes differ by at most one. Every member gets at least one microbatch if there are enough, so
/// that it can be measured.
[[nodiscard]] std::vector<MicrobatchRange> proportional_ranges(
    const std::vector<float>& microbatch_ms, std::uint32_t microbatches);

/// The assignment of a view's first step. `held` are the microbatches, by rank, whose sums the
/// member still has for exactly this step; if two hold the same one, the first in rank order keeps
/// it. How many of the others a member gets: each goes to the one that is done with new work first;
/// if several are, to those that hold fewest, which may be half computed still, so to newcomers
/// before anybody else; then lower ranks first. An unknown speed counts as the fastest of the known
/// ones: a newcomer is idle while the others are half way through what they will hold next. Which
/// ones: of `usual`, what it would compute if nothing had changed, as many as that allows, the
/// lowest first. It may have read them ahead, and a view that moves little is told in few bytes.
/// If nobody holds anything, the answer is proportional_ranges().
[[nodiscard]] std::vector<MicrobatchSet> first_step_sets(const std::vector<MicrobatchSet>& held,
                                                         const std::vector<MicrobatchSet>& usual,
                                                         const std::vector<float>& microbatch_ms,
                                                         std::uint32_t microbatches);

/// All who held the job's state are gone, and no candidate has been offered the newest checkpoint:
/// that may have more of the job than they do.
[[nodiscard]] bool has_lost_state(const Membership& membership);

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
void announce(View view, const std::optional<View>& before, std::uint32_t delta_from_members,
              Outbox& outbox);

}  // namespace mayfly::elastic
