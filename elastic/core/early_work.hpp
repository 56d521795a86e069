#pragma once

// What a member computes while no group stands: from the boundary that ended one view until the
// group of the next, and while that forms. Kept sums do not care in which view a microbatch was
// computed (ADR 8), only from which weights and for which step; these functions say when both are
// certain. Pure.

#include "elastic/core/view.hpp"

namespace mayfly::elastic {

/// Of a view that was announced and has no group yet: what `self`, which holds the state after
/// `committed`, may begin of its first step. All of its share, or nothing if it lacks the view's
/// state: gradients of other weights must never come into the step's sums.
[[nodiscard]] MicrobatchSet work_before_group(const View& view, const ViewMember& self,
                                              Step committed);

/// Of a view that has ended at a boundary, before the next one is announced: what `self`, told that
/// it stays, may begin of the step after that boundary. Nobody knows yet who computes what then, so
/// it is no more than `at_once` of its usual microbatches, as many as it has threads: the rest is
/// shared out by the next view, to newcomers too.
[[nodiscard]] MicrobatchSet work_at_boundary(const ViewMember& self, bool stays,
                                             std::uint32_t at_once);

}  // namespace mayfly::elastic
