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

}  // namespace mayfly::elastic
