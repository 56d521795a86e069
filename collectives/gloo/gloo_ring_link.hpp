#pragma once

// Private to the gloo transport: needs Gloo's headers.

#include <gloo/rendezvous/context.h>

#include <memory>

#include "base/ids.hpp"
#include "collectives/gloo/gloo_aborter.hpp"
#include "collectives/ring_link.hpp"

namespace mayfly::collectives {

/// A link over a connected Gloo context. `aborter` is shared with whoever formed the context.
[[nodiscard]] std::unique_ptr<RingLink> make_gloo_ring_link(
    std::shared_ptr<gloo::rendezvous::Context> context, RingNeighbours neighbours,
    std::shared_ptr<GlooAborter> aborter);

}  // namespace mayfly::collectives
