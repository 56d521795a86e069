#pragma once

// A link whose member is late: every operation begins so much later than it could, as if what this
// member sends first were so long on its way. For experiments with stragglers; changes no bits.

#include <functional>
#include <memory>

#include "base/time.hpp"
#include "collectives/ring_link.hpp"

namespace mayfly::collectives {

/// How late this member is now. Any thread, must not block.
using DelaySource = std::function<Duration()>;

/// `delay` is asked when an operation begins.
[[nodiscard]] std::unique_ptr<RingLink> make_late_link(std::unique_ptr<RingLink> link,
                                                       DelaySource delay);

}  // namespace mayfly::collectives
