#pragma once

// Assigns the microbatches of a step to members: the usual ranges, and the sets of a view's first
// step. Pure functions of speeds and of the sums that members hold; any thread.

#include <cstdint>
#include <vector>

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
/// The first pass decides how many each member gets: each microbatch goes to the member that would
/// finish its new work first. Among equals it goes to the member that holds fewest, because members
/// that hold some may also be computing others, then to the lower rank. An unknown speed counts as
/// the fastest known one, because a newcomer is idle.
/// The second pass decides which ones: as far as possible a member gets microbatches of `usual`,
/// its share without a change, the lowest first. It may have read these ahead, and the view's delta
/// stays small.
/// If no member holds anything, the result is proportional_ranges().
[[nodiscard]] std::vector<MicrobatchSet> first_step_sets(const std::vector<MicrobatchSet>& held,
                                                         const std::vector<MicrobatchSet>& usual,
                                                         const std::vector<float>& microbatch_ms,
                                                         std::uint32_t microbatches);

/// Ends the process unless each microbatch of the view's first step has exactly one owner.
void check_covers_once(const View& view, std::uint32_t microbatches);

}  // namespace mayfly::elastic
