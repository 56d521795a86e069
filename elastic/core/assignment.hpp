#pragma once

// Who computes which microbatches. Pure functions of what the coordinator knows when it makes a
// view; the answers travel inside the view, so members never have to agree on them.

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

/// Splits `microbatches` into one contiguous range per rank so that the slowest member is done as
/// early as possible. `microbatch_ms` is the measured time of one microbatch by rank; 0 means
/// unknown and counts as the median of the known ones. If the speeds are equal within 20 %, the
/// sizes differ by at most one. Every member gets at least one microbatch if there are enough, so
/// that it can be measured.
[[nodiscard]] std::vector<MicrobatchRange> proportional_ranges(
    const std::vector<float>& microbatch_ms, std::uint32_t microbatches);

/// The assignment of a view's first step. `held` are the microbatches, by rank, whose sums the
/// member still has for exactly this step; if two hold the same one, the first in rank order keeps
/// it. The others are given to whoever is done with new work first; if several are, to those who
/// hold fewest, which may be half computed still, so to newcomers before anybody else; then lower
/// ranks first. An unknown speed counts as the fastest of the known ones: a newcomer is idle while
/// the others are half way through what they will hold next. If nobody holds anything, the answer
/// is proportional_ranges().
[[nodiscard]] std::vector<MicrobatchSet> first_step_sets(const std::vector<MicrobatchSet>& held,
                                                         const std::vector<float>& microbatch_ms,
                                                         std::uint32_t microbatches);

}  // namespace mayfly::elastic
